// Compresses what was built, once and as small as brotli can, so that the daemon sends it as it is.
//
//   node compress.mjs FOLDER           writes NAME.br beside each file that is worth it
//   node compress.mjs FOLDER --check   fails if a NAME.br is missing, left over, or not of its file
//
// The check compares what comes out of the compressed files: another version of Node may compress in another way.
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, brotliDecompressSync, constants } from "node:zlib";

const [folder, check] = process.argv.slice(2);
/** A smaller file fits into one packet or two anyway. */
const WORTH_IT = 4096;

const names = readdirSync(folder, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => join(entry.parentPath, entry.name));
const complain = (name, what) => {
  console.error(`error: ${name} ${what}: run scripts/web`);
  process.exitCode = 1;
};
for (const name of names.filter((name) => !name.endsWith(".br"))) {
  const plain = readFileSync(name);
  const compressed = `${name}.br`;
  if (plain.length <= WORTH_IT) continue;
  if (!check) {
    const params = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY, [constants.BROTLI_PARAM_SIZE_HINT]: plain.length };
    writeFileSync(compressed, brotliCompressSync(plain, { params }));
  } else if (!existsSync(compressed)) complain(name, "is not compressed");
  else if (!brotliDecompressSync(readFileSync(compressed)).equals(plain)) complain(compressed, "is not of its file");
}
for (const name of names.filter((name) => name.endsWith(".br"))) {
  const plain = name.slice(0, -3);
  if (!existsSync(plain) || readFileSync(plain).length <= WORTH_IT) complain(name, "is left over");
}
