"""The class and the case folding of all code points.

The tables are pinned to Unicode 14.0.0 and are part of this file, so that a model gives the same
keys on every Python, whatever version of Unicode its `unicodedata` has. Code points that 14.0.0
leaves unassigned do not change. `python -m hashembed.text.characters` prints the tables of the
running Python; replacing the tables below changes keys.
"""

import base64
import string
import unicodedata
import zlib
from functools import cache

import numpy as np

from hashembed.core.arrays import I32, U8, U32

UNICODE_VERSION = "14.0.0"
CODE_POINTS = 0x110000

# The layout of a character table (see `character_table`).
PAIRS = CODE_POINTS
EXPANSIONS = PAIRS + 128
MARK = 0xFF  # no byte of UTF-8
SEPARATOR = MARK

# All that `str.isspace()` calls white space, as ranges; the other separators are punctuation.
WHITE_SPACE = (
    (0x09, 0x0E),
    (0x1C, 0x21),
    (0x85, 0x86),
    (0xA0, 0xA1),
    (0x1680, 0x1681),
    (0x2000, 0x200B),
    (0x2028, 0x202A),
    (0x202F, 0x2030),
    (0x205F, 0x2060),
    (0x3000, 0x3001),
)


_SEPARATORS = (
    "c-mc*O>0v@6o&8IkC@z;+bcu`O-Ml$+Xl201eMm0O(2Ad5k$pJZ4pZe3FyLLT13#5&_$7gRY5lj`V-WxTgj^bK>P`67t"
    "U~=f$1y`@0|CXIdkrNW^O46f<#-Ut*R~6c0k)PZ3Qr9t?)zk7(W72_{ihGhk`}?v65O-<j=ud3q5SIu6nVGv&Wp(rqBC"
    "uGknu;;^(wYXloEpl+;P_UxJUpA^1WG9>nkC-|@ct6ZLIRC+Vk!-$t{T{63m~CcdJ{lE!WP9=aX!bYJ9qTKI20&CR)GZ"
    "Rh#EUGknXSH-zs@N2}^>FpwYF2G-Ac4a${NY)8G89Yp^;$WTq88{53zUAj*iCx2Qpyie>a75!J`k5sDkNtN31J;|`&ak"
    "$*W>z1R<j2m844()4=Xo#KKhN+H_e+VM%g&q)K19C}^>0%9v@-`|v+%aJC3MN*NA$LVZ}~sucdv{8le3K`Cx~UvIkES4"
    "UO9afoE-OkhRn|G_qg{C75C#cI=taNo+b8<ckm1T2fTe>xsv;Q3V%SotKe<=$|H$?<SsSgzmeB--o4c;rjL;O6FWNi|A"
    "kxVum<;D$vLT0*VqH_uePJwR@q;pW{3DQ_&xk0`t0D}<-Oc+^i9yq;56qx4+RV8IEW=aDhvPQ0(sQ9LLK`b?MD1x*#EV"
    "|JnE7+&Sd|8m$5h$"
)
_FOLDS = (
    "c-rk-U1(fI6rQ_x^Rr1)Y6wb5TUrs?uBF;o5etfIKwoN$556b}^`#ged}$GlVx<(CB8vJTqJmWl;)^dLYAHSl1^*&a+E"
    "QEahg2#lRVbP^COv+~Jz?+O+?%_<bAR@HaG1ICb7tnunKNfjHYH<>V}Tw6^|z6KE~0+Dw6R5Q4Q-q@&%uc(^UKW*k*T*"
    "$KA_Ie&kgD8ZO43iL&j-^Y{SNNEbGA{`Pb?O=&ZlbEa+Crv%CtRo`|*CI7>`jph3_;h;B5Zt8T!WTub)J25oJD9`#w)T"
    "c-u*FsbAwSWkxglQ}n*TQ}P!H@N;lZ#0kI6rEYGj+C5q>w7K++Yuzsw6Ci#LT3sg<^2uzi>h}c>~a*}8&ZC+x;6SPIgg"
    "JL)wVmr|LCccPgJ|2Q<)p{-qNH@hCp|?mhP*bZ1`ni=gF@_uJ24`!B!U}Wxsysv+WyasKI`RmZ{6fD7XFyU%AU?lk-j7"
    "pJ8RS^2mv8>6ZK&(1e?v_f;HJ+7(_m5Kz{aw==I3`DDv&GGX(1x5e?1M*1$+&2(qyd|ZzC9sANF@s5Awxn%6aZcF3bkN"
    "f171)@0O{QHRLl{Vk^+cCyBb;Q8-Vq&jeCu-Mx4q-kMp6|ag)-M?Ib}Eng185uaQzD}~k$)KJ^V0q<sdL3Iz$a}5ot84"
    "D%~YBHInYLYb6S*?zkd?`o22b|&<5le<JLxadDB+J`6sa6NvFc^J&al8eQL3sUj*NSHMASW;Ac(|J&yL@A%7nEdyy|V<"
    "@Fq+rMfVVy3eFMFMIPjRiB|Xp8O2zu2S=7td@Ih4&y+?#D4oZq^u(=rF^(f8GegC?0?Q8g^8ds;lui|-?N^RO|I)lYM="
    "e7g$7d==U)Z7Lg6+l?J>L2g!)E5L*{R9NOqk6tKWmq(mj8b^`*}fBQp})XS;Cmh%pDp<2{EB#}EfJc3&%<{FP{h$3|R)"
    "PMfu`fxi)LS)0ATU&I;b-#-o6dhqf{eR2M`BJRa&5%t3n{G<Bc-DH1WUkNh!7wx)41~gKx`%?PehkCX_$51|o{H*vFM#"
    "`$*D$`{f=EY5`%XLSE-%gSFy!f(=k=51m90$FL{6o{_dGY+X-Nz%<wq=L#dLPX2EHqE9Gv?+d?G}%>!%__I!Ia1O|G%$"
    "J6AfZt%mt#EO_j5A0e<>Axs&;OeX+c6U!N-PajB?revR`Rv#<|upu@p&{<Dt~Z9ZDxT#uvAKVr{#41Q~EL;45O8<Bqcp"
    ")pU)FCRbP_s(VTSpmJ?emFSJ|It(F@x_uz&s?g$dyT~R8BSNFjQwHW&+o6<nb(xY`Rk&05)|jp_hjdMOm%pi|AU0Y`H7"
    "a=sjOiyzkS-g&R#fwSLbUV<7v=q9U%L-Fo6BIGT&M9Env;Fmey=@EQO+zZ~*Uv7v}VADbkBk+z)4{5-<G(`O*TB4PUI&"
    "FyvN$U#jz7{=&_UEG9*_j{9W5YkUA@-nA~*c9+!g??O%>@Aq{I!iQsUw}rIv%Qk9ms>uq4LXjTqF_qsv&WU|rDRnvc@q"
    "fy1;P{^4zb(J6e!W7Wunf{SmqL*V<lt;vxAb1LIhI19P$(3NU^w#I?UGp<NA5J#6E_cQyC_fgamL)GGWFK;cTk&V=cZ6"
    "76pD0!|9^|){cmVYO`%XE2>$`=;vTm"
)


# --- generating ------------------------------------------------------------------------------


def is_separator(char: str) -> bool:
    """Whether this Python calls a character white space or punctuation."""
    return (
        char.isspace() or unicodedata.category(char).startswith("P") or char in string.punctuation
    )


def unicode_separators() -> I32:
    """The code points where a run of separators begins or ends, in this Python: (2 * runs,)."""
    found = np.array([is_separator(chr(c)) for c in range(CODE_POINTS)])
    return np.flatnonzero(np.diff(found, prepend=False)).astype(np.int32)


def unicode_folds() -> I32:
    """Each character that case folding changes and the one to three it becomes: (folds, 4)."""
    pairs = ((c, chr(c).casefold()) for c in range(CODE_POINTS))
    return np.array(
        [[c, *map(ord, f), *[-1] * (3 - len(f))] for c, f in pairs if f != chr(c)], np.int32
    )


def compress(rows: I32) -> str:
    """Small text that `expand` turns back into `rows`: (n, columns)."""
    rows = np.diff(rows, axis=0, prepend=np.zeros_like(rows[:1]))
    packed = zlib.compress(rows.T.astype("<i4").tobytes(), 9)
    return base64.b85encode(packed).decode()


def expand(text: str, columns: int) -> I32:
    """The inverse of `compress`."""
    flat = np.frombuffer(zlib.decompress(base64.b85decode(text)), "<i4")
    return np.cumsum(flat.reshape(columns, -1).T, axis=0, dtype=np.int32)


# --- the tables that the kernels read --------------------------------------------------------


def utf8_codes(points: I32) -> U32:
    """The UTF-8 bytes of each code point in one integer, first byte lowest. (n,) -> (n,)"""
    c = points.astype(np.uint32)
    low, mid, high = c & 63, c >> 6 & 63, c >> 12 & 63
    two = 0xC0 | c >> 6 | (0x80 | low) << 8
    three = 0xE0 | c >> 12 | (0x80 | mid) << 8 | (0x80 | low) << 16
    four = 0xF0 | c >> 18 | (0x80 | high) << 8 | (0x80 | mid) << 16 | (0x80 | low) << 24
    return np.select([c < 0x80, c < 0x800, c < 0x10000], [c, two, three], four)


def all_utf8_codes() -> U32:
    """`utf8_codes` of every code point, fast: 64 consecutive ones differ only in the last byte."""
    heads = np.arange(0, CODE_POINTS, 64, dtype=np.int32)
    steps = np.select([heads < 0x80, heads < 0x800, heads < 0x10000], [0, 8, 16], 24)
    last = np.arange(64, dtype=np.uint32) << steps.astype(np.uint32)[:, None]
    return (utf8_codes(heads)[:, None] + last).ravel()


def _separators() -> tuple[I32, I32]:
    """The code points of white space, and those of punctuation."""
    runs = expand(_SEPARATORS, 1).reshape(-1, 2)
    separators = np.concatenate([np.arange(*run, dtype=np.int32) for run in runs])
    spaces = np.concatenate([np.arange(*run, dtype=np.int32) for run in WHITE_SPACE])
    punctuation = np.zeros(CODE_POINTS, np.bool_)
    punctuation[separators] = True
    punctuation[spaces] = False
    return spaces, np.flatnonzero(punctuation).astype(np.int32)


@cache
def punctuation_table() -> U8:
    """Which code points are punctuation: (CODE_POINTS,), ones and zeros."""
    table = np.zeros(CODE_POINTS, np.uint8)
    table[_separators()[1]] = 1
    table.flags.writeable = False
    return table


@cache
def character_table(lowercase: bool, keep_punctuation: bool = False) -> U32:
    """What each code point becomes, as the kernels read it.

    Entry c < CODE_POINTS is the UTF-8 of the folded character. If its lowest byte is MARK, it is
    SEPARATOR, or the other bytes are an index into the rows of four at EXPANSIONS: a number of
    characters, and the UTF-8 of each. At PAIRS there are two entries, 64 bits, for each value of
    the low six bits of a lead byte: bit x is set if a following byte with the low six bits x may
    begin white space or punctuation outside ASCII. White space is a separator, and so is
    punctuation unless it is kept.
    """
    codes = all_utf8_codes()
    spaces, punctuation = _separators()
    separators = np.concatenate([spaces, punctuation])
    pairs = np.zeros((64, 64), np.uint32)
    beyond = codes[separators[separators >= 0x80]]
    pairs[beyond & 63, beyond >> 8 & 63] = 1
    bits = (pairs.reshape(128, 32) << np.arange(32, dtype=np.uint32)).sum(axis=1, dtype=np.uint32)
    codes[spaces if keep_punctuation else separators] = SEPARATOR
    expansions = np.zeros((1, 4), np.uint32)  # row 0 would be SEPARATOR
    if lowercase:
        points, folded = np.split(expand(_FOLDS, 4), [1], axis=1)
        lengths = (folded >= 0).sum(axis=1, dtype=np.uint32)
        one = lengths == 1
        codes[points[one, 0]] = utf8_codes(folded[one, 0])
        codes[points[~one, 0]] = MARK | np.arange(1, 1 + (~one).sum(), dtype=np.uint32) << 8
        rows = np.column_stack([lengths[~one], utf8_codes(folded[~one])])
        expansions = np.concatenate([expansions, rows])
    table = np.concatenate([codes, bits, expansions.ravel()])
    table.flags.writeable = False
    return table


def main() -> None:
    """Print the tables of the running Python, as this file writes them."""
    print(f'UNICODE_VERSION = "{unicodedata.unidata_version}"')
    tables = {"_SEPARATORS": unicode_separators()[:, None], "_FOLDS": unicode_folds()}
    for name, rows in tables.items():
        text = compress(rows)
        lines = [f'    "{text[i : i + 92]}"' for i in range(0, len(text), 92)]
        print(f"{name} = (", *lines, ")", sep="\n")


if __name__ == "__main__":
    main()
