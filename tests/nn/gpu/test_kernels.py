"""The Triton kernels against the PyTorch reference: on a GPU or, without one, interpreted."""

import itertools

import numpy as np
import pytest
import torch
from tests.cases.triton import DEVICE, Case, assert_same, call_of, kernels_on, upstream

from hashembed.hashing.spec import HashSpec
from hashembed.hashing.spec import id_keys as numpy_id_keys
from hashembed.nn.cpu.row_kernels import record_width
from hashembed.nn.gpu import launch as cuda
from hashembed.nn.gpu import places as cuda_places
from hashembed.nn.gpu import rows as cuda_rows
from hashembed.nn.gpu import tiles
from hashembed.nn.gpu.kernels import layout
from hashembed.nn.gpu.kernels.layout import RuleKind
from hashembed.nn.ops import reference
from hashembed.nn.ops.sparse import sparse_rows
from hashembed.nn.optim import gpu_steps
from hashembed.nn.optim import history as histories
from hashembed.nn.optim import optimizers as optim

SHORT = [0, 2, 0, 1, 5, 0]
UNIT = layout.EXTENT_UNIT.value


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch):
    """Without a GPU the optimizers do not import these kernels."""
    for module in (gpu_steps, optim):
        monkeypatch.setattr(module, "cuda_rows", cuda_rows, raising=False)


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Memory that nobody has written reads as NaN, or as the largest integer."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.empty(1, device=DEVICE).isnan()
    yield
    torch.use_deterministic_algorithms(before)


def test_keys_of_ids_are_those_of_the_specification():
    ids = torch.randint(-(2**63), 2**63 - 1, (7, 300), generator=torch.Generator().manual_seed(0))
    got = cuda.id_keys(ids.to(DEVICE))
    assert np.array_equal(got.cpu().numpy(), numpy_id_keys(ids.numpy()))
    assert cuda.id_keys(ids[:0].to(DEVICE)).shape == (0, 300)


@pytest.mark.parametrize("indexing", ["independent", "shared", "identity"])
@pytest.mark.parametrize(("K", "B"), [(23, 7), (7, 7), (2**32, 2**32), (2**31 + 9, 1), (1, 5)])
def test_rows_and_buckets_are_those_of_the_specification(indexing, K, B):
    spec = HashSpec(K, B, min(B, 3), indexing, seed=-4)
    case = Case(HashSpec(min(K, 99), min(B, 9), min(B, 3), indexing, seed=-4), 1, lengths=SHORT)
    case.spec = spec
    if indexing == "identity":
        case.keys = case.keys.abs() * 7919 % K
    rows, buckets = spec(case.keys.numpy())
    call = call_of(case, bag=False)._replace(weight=torch.empty(B, 1, device="meta"))
    found = cuda_places.locate(call, E=True, P=True)
    assert (found.keys.dtype == torch.int64) == (K + B + 1 >= 2**31)
    assert np.array_equal((found.of_P.long() - found.base).cpu().numpy(), rows)
    assert np.array_equal(found.of_E.view(spec.num_hashes, -1).cpu().numpy(), buckets.T)
    assert found.token_bags.tolist() == list(range(len(rows)))


@pytest.mark.parametrize("columns", [1, 3, 26])
def test_integer_ids_are_mixed_inside_of_the_kernels(columns):
    case = Case(HashSpec(23, 7, 2), 3, lengths=SHORT)
    ids = torch.arange(-3, len(case.keys) - 3)
    in_turn = np.arange(len(ids)) % columns
    case.keys = torch.from_numpy(numpy_id_keys(ids.numpy(), in_turn))
    call = call_of(case)
    mixed = call._replace(keys=ids.to(DEVICE), mix=columns)
    assert torch.equal(cuda.forward(mixed), cuda.forward(call))
    single = mixed._replace(offsets=None), call._replace(offsets=None)
    assert torch.equal(cuda.forward(single[0]), cuda.forward(single[1]))
    assert torch.equal(
        cuda_places.locate(mixed, True, True).keys, cuda_places.locate(call, True, True).keys
    )
    grad = torch.ones(call.num_bags, 3, dtype=torch.float64, device=DEVICE)
    sinks = cuda.dense(call.weight), cuda.dense(call.importance)
    for a, b in zip(
        cuda.backward(mixed, grad, sinks), cuda.backward(call, grad, sinks), strict=True
    ):
        assert a is b or torch.equal(a.values, b.values)


@pytest.mark.parametrize("columns", [1, 5])
def test_keys_of_ids_in_columns(columns):
    ids = torch.arange(-7, 23, device=DEVICE).view(6, 5) * 2**33
    want = numpy_id_keys(ids.cpu().numpy(), np.arange(5) % columns)
    assert np.array_equal(cuda.id_keys(ids, count=columns).cpu().numpy(), want)
    given = (torch.arange(5, device=DEVICE) % columns).expand(6, 5)
    assert np.array_equal(cuda.id_keys(ids, given).cpu().numpy(), want)


FORMS = list(itertools.product(("sum", "concat"), ("off", "on", "append"), ("sum", "mean")))


@pytest.mark.parametrize(("aggregation", "importance", "mode"), FORMS)
def test_every_form(aggregation, importance, mode):
    form = {"importance": importance, "aggregation": aggregation, "mode": mode}
    case = Case(HashSpec(23, 7, 2, seed=5), 3, lengths=SHORT, **form)
    assert_same(case, 1e-12, keep=True, weights=mode == "sum")
    if mode == "sum":
        assert_same(case, 1e-12, keep=True, bag=False)
    else:
        assert_same(case, 1e-12)


@pytest.mark.parametrize("indexing", ["shared", "identity"])
@pytest.mark.parametrize(("K", "B", "k"), [(1, 1, 1), (1, 2, 2), (9, 9, 5)])
def test_indexing_and_tiny_tables(indexing, K, B, k):
    case = Case(HashSpec(K, B, k, indexing), 2, lengths=SHORT)
    assert_same(case, 1e-12, keep=True)
    assert_same(case, 1e-12, bag=False)


@pytest.mark.parametrize("d", [1, 17, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_widths(d, dtype):
    case = Case(HashSpec(31, 6, 2), d, dtype=dtype, lengths=[5, 0, 2], aggregation="concat")
    assert_same(case, 1e-12 if dtype == torch.float64 else 3e-5, keep=True, weights=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype):
    case = Case(HashSpec(31, 6, 2), 3, dtype=dtype, importance="append", lengths=SHORT)
    got = kernels_on(case, keep=True)
    exact = case(reference, keep=True, dtype=torch.float64)
    half, single = torch.finfo(dtype), torch.finfo(torch.float32)
    # Half a unit; but Triton's interpreter cuts bfloat16 off instead of rounding it.
    share = 1 if dtype == torch.bfloat16 and DEVICE == "cpu" else 0.5
    for mine, want in zip(got, exact, strict=True):
        assert mine.dtype == dtype
        bound = want.abs() * half.eps * share + 100 * single.eps + half.tiny * half.eps
        assert ((mine.double() - want).abs() <= bound).all()


def test_nothing_at_all():
    case = Case(HashSpec(31, 6, 2), 3, lengths=[])
    case.keys = case.keys[:0]
    for sink in (cuda.dense, cuda.compact):
        out, of_E, of_P = kernels_on(case, sink)
        assert out.shape == (0, 3)
        for g in (of_E, of_P):
            assert not (g[1] if isinstance(g, tuple) else g).any()


@pytest.mark.parametrize("keep", [False, True])
def test_compact_gradients_hold_touched_rows_once_and_in_order(keep):
    case = Case(HashSpec(500, 90, 2), 2, lengths=SHORT, aggregation="concat")
    dense = kernels_on(case, keep=keep)
    compact = kernels_on(case, cuda.compact, keep=keep)
    end = int(case.offsets[-1])
    kept = case.keys[:end][case.keep[:end]] if keep else case.keys[:end]
    rows, buckets = case.spec(kept.numpy())
    for (found, values), want, index in zip(compact[1:], dense[1:], (buckets, rows), strict=True):
        assert found.tolist() == np.unique(index).tolist()
        assert torch.equal(values, want[found])


def distinct(rows, order, size, more=()):
    """The distinct rows among sorted rows of a table, and `more` rows, of which one is counted.

    Rows from `size` on do not count.
    """
    found, slots, counts = torch.unique(rows, return_inverse=True, return_counts=True)
    starts = torch.searchsorted(slots, torch.arange(len(found) + len(more))).int()
    longest = tiles.most_short_terms(3)
    few, several = [], []
    for row, start, count in zip(found.tolist(), starts.tolist(), counts.tolist(), strict=False):
        if row < size and count <= longest:
            (few if count <= tiles.FEW else several).append((row, UNIT * start + count))
    between = [(0, 0)] * (len(rows) - len(few) - len(several))
    listed, extents = torch.tensor(few + between + several[::-1]).T.contiguous()
    numbers = torch.tensor([len(found) + min(len(more), 1), len(few), len(several)]).int()
    found = torch.cat([found, torch.tensor(more, dtype=torch.int64)])
    tensors = (order.int(), order.int(), slots.int(), found, starts, listed, extents, numbers)
    return cuda_rows.Distinct(*(t.to(DEVICE) for t in tensors))


# Numbers of equal keys: rows that end at the edge of a tile, cross it, or fill many tiles.
RUNS = [[64], [1] * 20, [3, 4, 1, 8, 16, 5], [7, 2, 50, 1, 1, 9], [8, 8, 8], [33], [5, 99, 31, 1]]


@pytest.mark.parametrize("known", [False, True])  # which rows they are
@pytest.mark.parametrize("behind", [0, 3])  # rows at the end that do not count
@pytest.mark.parametrize("runs", RUNS)
def test_rows_of_any_length_are_added_up(runs, behind, known, monkeypatch):
    monkeypatch.setattr(tiles, "SUM", (32, 1))  # 8 terms of up to 4 numbers
    monkeypatch.setattr(tiles, "LONG_NARROW", 4)
    monkeypatch.setattr(tiles, "EDGE_TILES", 2)
    monkeypatch.setattr(tiles, "GROUP", 2)
    rows = torch.repeat_interleave(torch.arange(len(runs)) * 3, torch.tensor(runs))
    values = torch.randn(len(rows), 3, dtype=torch.float64)
    order = torch.randperm(len(rows))
    source = torch.empty_like(values)
    source[order] = values  # term x of the sorted ones is source[order[x]]
    table = torch.zeros(3 * len(runs), 3, dtype=torch.float64, device=DEVICE)
    size = len(table) - behind
    terms = cuda_rows.GradientTerms(source.to(DEVICE), len(rows), size)
    rule = cuda_rows.Rule(RuleKind.STORE, table)
    if known:
        cuda_rows.update_terms(terms._replace(distinct=distinct(rows, order, size)), rule)
    else:
        keys, order = (rows + 5).to(DEVICE), order.to(DEVICE)
        cuda_rows.sum_rows(terms._replace(keys=keys, order=order, base=5), rule)
    want = torch.zeros(3 * len(runs), 3, dtype=torch.float64).index_add(0, rows, values)
    want[len(table) - behind :] = 0
    torch.testing.assert_close(table.cpu(), want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("known", "mode"), [(False, "sum"), (True, "mean")])
@pytest.mark.parametrize("importance", ["on", "off"])
def test_prepared_calls_give_the_same_sums(importance, known, mode):
    form = {"importance": importance, "mode": mode}
    case = Case(HashSpec(50, 9, 2), 3, dtype=torch.float64, lengths=SHORT, **form)
    call = call_of(case, keep=True)
    wider = call._replace(keys=torch.cat([call.keys] * 2), keep=torch.cat([call.keep] * 2))
    buffers = cuda_places.make_term_buffers(wider)
    bags = cuda_places.locate(call._replace(keep=None), True, True).token_bags if known else None
    if bags is not None:
        bags[int(case.offsets[-1]) :] = -7  # the bag of a key in no bag is not read
    cuda_places.prepare(call, buffers, bags)
    places = cuda_places.prepared(call, buffers)
    factors = cuda.make_factors(call) if known else None
    grad = upstream(cuda.forward(call, factors), torch.float64).to(DEVICE)

    def summed(table):
        def sink(terms):
            rows = terms.distinct.rows[: int(terms.distinct.counts[0])]
            keys = places.of_E if table is call.weight else places.of_P
            assert rows.tolist() == sorted(set((keys - terms.base).tolist()))
            out = torch.full_like(table, torch.nan)
            cuda_rows.update_terms(terms, cuda_rows.Rule(RuleKind.STORE, out))
            live = rows[rows < len(table)]
            assert out.isnan().any(1).sum() == len(table) - len(live)
            out = out.nan_to_num()
            return cuda.Gradient(None, out)

        return sink

    tables = [t for t in (call.weight, call.importance) if t is not None]
    sinks = [summed(t) for t in tables] + [None] * (2 - len(tables))
    got = cuda.backward(call, grad, tuple(sinks), places=places, factors=factors)
    dense = [cuda.dense(t) for t in tables] + [None] * (2 - len(tables))
    want = cuda.backward(call, grad, tuple(dense))
    for mine, theirs in zip(got[: len(tables)], want[: len(tables)], strict=True):
        torch.testing.assert_close(mine.values, theirs.values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("importance", ["on", "off"])
def test_several_calls_are_prepared_at_once(importance):
    cases = [Case(HashSpec(50, 9, 2), 3, lengths=SHORT, importance=importance) for _ in range(3)]
    calls = [call_of(case) for case in cases]
    for i, call in enumerate(calls):
        call.keys.copy_(call.keys.roll(7 * i))
    keys = torch.cat([call.keys for call in calls])
    offsets = torch.cat([call.offsets for call in calls])
    together = cuda_places.make_term_buffers(calls[0], 3, 2)
    second = cuda_places.TermBuffers(*(tensor.view(2, -1)[1] for tensor in together))
    cuda_places.prepare(calls[0]._replace(keys=keys, offsets=offsets), second, calls=3)
    span = cuda_places.span(calls[0])
    for i, call in enumerate(calls):
        alone = cuda_places.make_term_buffers(call)
        cuda_places.prepare(call, alone)
        want, got = cuda_places.prepared(call, alone), cuda_places.prepared(call, second, i)
        assert torch.equal(got.token_bags, want.token_bags)
        assert torch.equal(got.keys - i * span, want.keys)
        for mine, theirs in zip(got.distinct, want.distinct, strict=True):
            if len(theirs.slots):
                n, few, several = theirs.counts.tolist()
                assert mine.counts.tolist() == [n, few, several]
                for name in ("term_ids", "term_bags", "slots"):
                    assert torch.equal(getattr(mine, name), getattr(theirs, name))
                assert torch.equal(mine.rows[:n], theirs.rows[:n])
                assert torch.equal(mine.starts[:n], theirs.starts[:n])


@pytest.mark.parametrize("importance", ["on", "off"])
def test_distinct_rows_and_their_terms(importance, monkeypatch):
    """Which terms they have, and which have few, several or many; of more blocks than one."""
    monkeypatch.setattr(tiles, "LONG_NARROW", 6)
    g = torch.Generator().manual_seed(0)
    case = Case(HashSpec(60, 29, 2), 3, lengths=[5, 0, 40, 11, 0, 30], importance=importance)
    call = call_of(case)
    call.keys.copy_(call.keys[torch.randint(0, 80, call.keys.shape, generator=g) ** 2 // 100])
    buffers = cuda_places.make_term_buffers(call)
    cuda_places.prepare(call, buffers)
    places = cuda_places.prepared(call, buffers)
    tables = (call.weight, places.of_E.cpu(), 0), (call.importance, places.of_P.cpu(), places.base)
    lengths = set()
    for (table, keys, base), known in zip(tables, places.distinct, strict=True):
        if table is None:
            continue
        known = cuda_rows.Distinct(*(tensor.cpu() for tensor in known))
        rows, order = torch.sort(keys - base, stable=True)
        assert torch.equal(known.term_ids.long(), order)
        assert torch.equal(known.term_bags, places.token_bags.cpu()[order % len(call.keys)])
        total, few, several = known.counts.tolist()
        assert known.rows[:total].tolist() == rows.unique().tolist()
        M, found = len(rows), {}
        for at in [*range(few), *range(M - several, M)]:
            start, length = divmod(int(known.short_extents[at]), UNIT)
            assert (length <= tiles.FEW) == (at < few)
            assert set(rows[start : start + length].tolist()) == {int(known.short_rows[at])}
            found[int(known.short_rows[at])] = length
        counted = dict(zip(*(t.tolist() for t in rows.unique(return_counts=True)), strict=True))
        short = {r: n for r, n in counted.items() if r < len(table) and n <= 6}
        assert found == short
        lengths |= set(counted.values())
    assert {1, 2, 3} <= lengths
    assert max(lengths) > 6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_updates_smaller_than_the_precision_are_not_lost(dtype):
    tables = Tables(RuleKind.SGD, dtype, RULES["sgd"][1], d=8, rows=16)
    tables.rule.table.fill_(1)
    step = torch.finfo(dtype).eps / 8
    rows = torch.arange(16, device=DEVICE)
    for _ in range(40):
        cuda_rows.begin_step(tables.rule, step, tables.numbers())
        cuda_rows.update_rows(tables.rule, rows, torch.full((16, 8), -1.0, device=DEVICE))
    moved = (tables.rule.table.double() - 1) / step
    assert moved.unique().numel() > 2
    assert abs(moved.mean().item() - 40) < 5  # eleven times its standard error is 12


@pytest.mark.parametrize(
    ("name", "behind"),
    [("sgd", False), ("rowwise", False), ("adam", False), ("adam", True), ("adamw", True)],
)
def test_steps_of_prepared_rows(name, behind):
    kind, make = RULES[name]
    tables = Tables(kind, torch.float64, make)
    g = torch.Generator().manual_seed(1)
    batches = [torch.randint(0, 12, (7,), generator=g) for _ in range(8)]
    batches[3] = batches[2]  # all rows of one step are those of the next

    for t, rows in enumerate(batches):
        values = torch.randn(7, 3, generator=g, dtype=torch.float64)
        tables.on_cpu(0.1 / (t + 1), rows, values)
        in_order, order = torch.sort(rows, stable=True)
        other = next(row for row in range(12) if row not in in_order)
        known = distinct(in_order, order, 12, [12, other])  # neither counts
        if name == "adam" and not behind:
            cuda_rows.catch_up(tables.rule, known.rows, count=known.counts)
        cuda_rows.begin_step(tables.rule, 0.1 / (t + 1), tables.numbers())
        terms = cuda_rows.GradientTerms(values.to(DEVICE), 7, 12, distinct=known)
        cuda_rows.update_terms(terms, tables.rule, behind=behind)
        cuda_rows.end_step(tables.rule)
        touched = tables.rule.table.cpu()[rows]
        torch.testing.assert_close(touched, tables.p.detach()[rows], rtol=1e-10, atol=1e-10)
    if name in LAZY:
        tables.read(torch.arange(12))
        tables.optimizer.flush()
    torch.testing.assert_close(tables.rule.table.cpu(), tables.p.detach(), rtol=1e-10, atol=1e-10)


class Tables:
    """The same table under a row optimizer on the CPU, and under the kernels."""

    def __init__(self, kind, dtype, make, d=3, rows=12):
        g = torch.Generator().manual_seed(4)
        self.p = torch.nn.Parameter(torch.randn(rows, d, generator=g).to(dtype))
        self.optimizer = make([self.p])
        self.kind = kind
        state_type = cuda_rows.ACCUMULATION[dtype]
        columns = {RuleKind.ADAGRAD_ROWWISE: 1}.get(kind, d)
        if kind.is_lazy:
            columns = record_width(d, 1 if kind == RuleKind.MOMENTUM else 2)
        self.rule = cuda_rows.Rule(
            kind,
            self.p.detach().clone().to(DEVICE),
            torch.zeros(rows, columns, dtype=state_type, device=DEVICE),
            cuda_rows.make_numbers(DEVICE),
            torch.zeros((), dtype=torch.int64, device=DEVICE),
            torch.zeros(layout.HISTORY_ROWS, cuda_rows.RING, dtype=torch.float64, device=DEVICE),
        )
        self.rule.history[1, 0] = 1e-8 * (1 - 0.999) ** 0.5

    def numbers(self):
        return self.optimizer._gpu_numbers(self.optimizer.param_groups[0])

    def on_cpu(self, lr, rows, values):
        for group in self.optimizer.param_groups:
            group["lr"] = lr
            if "betas" in group:  # a schedule may change them from step to step
                group["betas"] = (0.85 + lr, 0.999)
            if group.get("momentum"):
                group["momentum"] = 0.8 + lr
        self.optimizer.before_read(self.p, rows)
        found = sparse_rows(rows, values, self.p.shape, coalesced=False)
        self.p.grad = found.coalesce()
        self.optimizer.step()

    def step(self, lr, rows, values, as_terms):
        self.on_cpu(lr, rows, values)
        cuda_rows.begin_step(self.rule, lr, self.numbers())
        if as_terms:
            keys, order = torch.sort(rows.to(DEVICE), stable=True)
            terms = cuda_rows.GradientTerms(
                values.to(DEVICE), len(rows), len(self.p), keys=keys, order=order
            )
            cuda_rows.sum_rows(terms, self.rule)
        else:
            found = self.p.grad.indices()[0].to(DEVICE), self.p.grad.values().to(DEVICE)
            cuda_rows.update_rows(self.rule, *found)
        cuda_rows.end_step(self.rule)

    def read(self, rows):
        self.optimizer.before_read(self.p, rows)
        cuda_rows.catch_up(self.rule, rows.to(DEVICE))


RULES = {
    "sgd": (RuleKind.SGD, lambda p: optim.RowSGD(p)),
    "adagrad": (RuleKind.ADAGRAD, lambda p: optim.RowAdagrad(p, eps=1e-8)),
    "rowwise": (RuleKind.ADAGRAD_ROWWISE, lambda p: optim.RowAdagrad(p, eps=1e-8, rowwise=True)),
    "adam": (RuleKind.ADAM, lambda p: optim.RowAdam(p)),
    "adamw": (RuleKind.ADAMW, lambda p: optim.RowAdamW(p, weight_decay=0.5)),
    "momentum": (RuleKind.MOMENTUM, lambda p: optim.RowSGD(p, momentum=0.9)),
    "nesterov": (RuleKind.MOMENTUM, lambda p: optim.RowSGD(p, momentum=0.9, nesterov=True)),
}
LAZY = ("adam", "adamw", "momentum", "nesterov")


@pytest.mark.parametrize("as_terms", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_updates_are_those_of_the_cpu(name, as_terms):
    tables = Tables(*RULES[name][:1], torch.float64, RULES[name][1])
    g = torch.Generator().manual_seed(0)
    for t in range(6):
        rows = torch.randint(0, 12, (7,), generator=g)
        if name in LAZY and t % 2:
            tables.read(rows)
            assert torch.equal(tables.rule.table.cpu()[rows] != 0, tables.p[rows] != 0)
        values = torch.randn(7, 3, generator=g, dtype=torch.float64)
        tables.step(0.1 / (t + 1), rows, values, as_terms)
        torch.testing.assert_close(
            tables.rule.table.cpu(), tables.p.detach(), rtol=1e-10, atol=1e-10
        )
    if name in LAZY:
        tables.read(torch.arange(12).repeat(2))
        tables.optimizer.flush()
        torch.testing.assert_close(
            tables.rule.table.cpu(), tables.p.detach(), rtol=1e-10, atol=1e-10
        )
        records = tables.optimizer.state[tables.p]["records"]
        used = 3 if tables.kind == RuleKind.MOMENTUM else 6
        torch.testing.assert_close(
            tables.rule.state.cpu()[:, :used], records[:, :used], rtol=1e-10, atol=1e-10
        )


@pytest.mark.parametrize("name", LAZY)
def test_rows_that_were_written_stay_and_their_moments_go_on(name):
    tables = Tables(RULES[name][0], torch.float64, RULES[name][1])
    for t in range(3):
        tables.step(0.1, torch.arange(4) * 2 + t, torch.ones(4, 3, dtype=torch.float64), False)
    with torch.no_grad():
        tables.p.fill_(7)
    tables.rule.table.fill_(7)
    cuda_rows.catch_up(tables.rule, torch.arange(12).to(DEVICE), move=False)
    tables.optimizer.flush()
    assert (tables.rule.table == 7).all()
    assert (tables.p == 7).all()
    used = 3 if tables.kind == RuleKind.MOMENTUM else 6
    records = tables.optimizer.state[tables.p]["records"][:, :used]
    torch.testing.assert_close(tables.rule.state.cpu()[:, :used], records, rtol=1e-12, atol=1e-12)
    assert records.any()
    rows = torch.tensor([1, 2, 11])
    tables.step(0.1, rows, torch.ones(3, 3, dtype=torch.float64), False)
    tables.read(torch.arange(12))
    torch.testing.assert_close(tables.rule.table.cpu(), tables.p.detach(), rtol=1e-12, atol=1e-12)
    assert not (tables.p == 7).all()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("sgd", torch.bfloat16), ("adam", torch.float32), ("rowwise", torch.float16)],
)
def test_updates_in_other_precisions(name, dtype):
    tables = Tables(RULES[name][0], dtype, RULES[name][1])
    rows = torch.tensor([3, 5, 3, 0])
    for t in range(3):
        values = torch.randn(4, 3, generator=torch.Generator().manual_seed(t)).to(dtype)
        tables.step(0.1, rows + t, values, as_terms=False)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(
        tables.rule.table.cpu(), tables.p.detach(), rtol=3 * eps, atol=3 * eps
    )


def test_histories_are_made_shorter_and_longer():
    history = torch.arange(2 * 10, dtype=torch.float64).view(2, 10)
    shorter = histories.resized(history, 8, 4)
    assert shorter.tolist() == [[8, 5, 6, 7], [18, 15, 16, 17]]
    longer = histories.resized(shorter, 8, 6)
    assert longer.tolist() == [[6, 7, 8, 0, 0, 5], [16, 17, 18, 0, 0, 15]]


def test_a_layer_used_several_times_is_updated_once():
    """Terms of several uses, joined, give the sum of their gradients."""
    case = Case(HashSpec(23, 7, 2), 3, lengths=SHORT, aggregation="concat")
    found: list = [[], []]
    wanted: list = [[], []]
    for shift in (0, 5):
        call = call_of(case)
        call.keys.copy_(call.keys.roll(shift))
        grad = upstream(cuda.forward(call), torch.float64).to(DEVICE)
        cuda.backward(call, grad, (found[0].append, found[1].append))
        dense = cuda.dense(call.weight), cuda.dense(call.importance)
        for of_table, gradient in zip(wanted, cuda.backward(call, grad, dense)[:2], strict=True):
            of_table.append(gradient.values)
    for terms, table, (one, other) in zip(
        found, (call.weight, call.importance), wanted, strict=True
    ):
        want, out = one + other, torch.zeros_like(table)
        cuda_rows.sum_rows(cuda_rows.join_terms(terms, table), cuda_rows.Rule(RuleKind.STORE, out))
        torch.testing.assert_close(out, want, rtol=1e-12, atol=1e-12)
