// Standard input: [[text, sizes of pieces], ...] as JSON. Standard output: the rows of each text,
// read piece by piece, and the rows of the same table written and read again.
import { CsvReader, findDelimiter, toCsv } from "../../src/hashembed/web/template/csv.mjs";

function rowsOf(text, delimiter, sizes) {
  const reader = new CsvReader(delimiter);
  for (let at = 0, i = 0; at < text.length; at += sizes[i++ % sizes.length]) {
    reader.push(text.slice(at, at + sizes[i % sizes.length]));
  }
  return reader.end();
}

let input = "";
for await (const piece of process.stdin) input += piece;
const found = JSON.parse(input).map(([text, delimiter, sizes]) => {
  const rows = rowsOf(text, delimiter, sizes);
  return { rows, again: rowsOf(toCsv(rows).slice(1), ",", [1 << 20]), delimiter: findDelimiter(text) };
});
process.stdout.write(JSON.stringify(found));
