declare module "*.svg" { const url: string; export default url; }
declare module "*.css";
/** The default exports of all files in pages/, in their order: see build.mjs. */
declare module "routes" { const routes: import("./route").AnyRoute[]; export default routes; }
