// What a page of the console is: a file in pages/ whose default export says where it is shown.
import type { ComponentChildren } from "preact";
import type { Pulse } from "./api";

interface Route {
  /** The part of the address: /jobs/NAME/PART, or /PART. */
  part: string;
  title: string;
  order: number;
  /** Whether there is nothing to show without an engine: for a flow that runs by itself. */
  engine?: boolean;
}

/** A part of a job, with a tab. */
export interface JobRoute extends Route {
  badge?: (pulse: Pulse) => number;
  show: (given: { pulse: Pulse; rest: string[] }) => ComponentChildren;
}

/** A page of the engine, with a link in the header. */
export interface MainRoute extends Route {
  show: () => ComponentChildren;
}

export const jobRoute = (route: JobRoute) => ({ kind: "job" as const, ...route });
export const mainRoute = (route: MainRoute) => ({ kind: "main" as const, ...route });
export const shown = (route: Route, single: boolean) => !(route.engine && single);
export type AnyRoute = ReturnType<typeof jobRoute> | ReturnType<typeof mainRoute>;
