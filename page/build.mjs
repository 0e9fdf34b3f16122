// node build.mjs FOLDER: bundle the console into a folder, each file named by its hash.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { build } from "esbuild";

const folder = process.argv[2];
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });

/** The module "routes": a file in src/pages is a page, and listed nowhere. */
const routes = {
  name: "routes",
  setup(found) {
    found.onResolve({ filter: /^routes$/ }, () => ({ path: "routes", namespace: "routes" }));
    found.onLoad({ filter: /.*/, namespace: "routes" }, () => {
      const files = readdirSync("src/pages").sort();
      const lines = files.map((file, at) => `import page${at} from "./src/pages/${file}";`);
      const all = files.map((_, at) => `page${at}`);
      lines.push(`export default [${all}].sort((a, b) => a.order - b.order);`);
      return { contents: lines.join("\n"), resolveDir: "." };
    });
  },
};

const { metafile } = await build({
  entryPoints: { console: "src/main.tsx" },
  outdir: folder,
  entryNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  bundle: true,
  plugins: [routes],
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
