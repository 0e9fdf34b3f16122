// node build.mjs FOLDER: bundle the console into a folder, each file named by its hash.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { build } from "esbuild";

const folder = process.argv[2];
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });

const { metafile } = await build({
  entryPoints: { console: "src/main.tsx" },
  outdir: folder,
  entryNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "eof",
  loader: { ".svg": "file" },
  publicPath: "/page",
  metafile: true,
  logLevel: "warning",
});

const made = Object.keys(metafile.outputs).map((file) => basename(file));
const only = (end) => made.find((file) => file.endsWith(end));
const icon = only(".svg");
const page = readFileSync("index.html", "utf8")
  .replace("SCRIPT", `/page/${only(".js")}`)
  .replace("STYLE", `/page/${only(".css")}`)
  .replace("ICON", `/page/${icon}`);
writeFileSync(join(folder, "index.html"), page);
