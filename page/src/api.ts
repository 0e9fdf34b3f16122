// What the engine answers, with the types of its own description. The page asks nothing else.
import { signal } from "@preact/signals";
import type { components } from "../build/api";

type Schemas = components["schemas"];
export type Job = Schemas["JobStatus"];
export type Group = Schemas["GroupStatus"];
export type Engine = Schemas["EngineStatus"];
export type Happening = Schemas["Happening"];
export type Drawing = Schemas["Drawing"];
export type GraphNode = Schemas["Node"];
export type Series = Schemas["Series"];
export type Lines = Schemas["Lines"];
export type Journal = Schemas["JournalStatus"];
export type JournalDetail = Schemas["JournalDetail"];
export type JournalRows = Schemas["JournalRows"];
export type Letter = Schemas["LetterStatus"];
export type LetterPage = Schemas["LetterPage"];
export type ReplayAnswer = Schemas["ReplayAnswer"];
export type Version = Schemas["VersionStatus"];
export type Log = Schemas["Log"];
export type Stage = Schemas["StageStatus"];
export type StateRows = Schemas["StateRows"];
export type PatternRuns = Schemas["PatternRuns"];
export type Checkpoint = Schemas["CheckpointStatus"];
export type VerifiedCheckpoint = Schemas["VerifiedCheckpoint"];
export type Binary = Schemas["BinaryStatus"];
export type WatcherSeen = Schemas["WatcherSeen"];
export type AuditEntry = Schemas["AuditEntry"];
export type Taken = Schemas["Taken"];
export type Tasks = Schemas["Tasks"];
export type EngineLoad = Schemas["EngineLoad"];
export type Switch = Schemas["SwitchStatus"];
export type SwitchDetail = Schemas["SwitchDetail"];
export type Switching = Partial<Schemas["Switching"]>;
export type Comparison = Schemas["Comparison"];

export type Change = "kept" | "replaced" | "new" | "removed";

/** The plan of a switch, as `millstream switch --plan --json` prints it. */
export interface SwitchPlan {
  mode: string;
  possible: boolean;
  groups: {
    name: string;
    change: Change;
    differences: string[];
    stages: { name: string; change: Change; state: string; move: string; how: string; differences: string[] }[];
  }[];
  units: { groups: string[]; overlap: number | null }[];
  step: number;
  overlap: number | null;
  obstacles: { fact: string; hint: string }[];
  grown: string[];
  notes: string[];
}

export type SwitchPlanned = Omit<Schemas["SwitchPlanned"], "plan"> & { plan: SwitchPlan };

export interface Rates {
  rows_in: number;
  rows_out: number;
  sources: Record<string, number>;
  groups_in: Record<string, number>;
  groups_out: Record<string, number>;
  /** The part of the time that each group spends, by cause. */
  spent: Record<string, Record<string, number>>;
}

export interface Pulse {
  job: Job;
  rates: Rates;
  /** Why groups are slow, those that are. */
  slow: Record<string, string>;
}

export interface Beat {
  at: number;
  engine: Engine;
  jobs: Pulse[];
  whole?: boolean;
  gone?: string[];
}

export class Problem extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint?: string,
  ) {
    super(message);
  }
}

/** The token, for as long as the page is open: it is nowhere else. */
export const token = signal("");
/** Why a token is asked for; null: it is not. */
export const asking = signal<string | null>(null);
let answer: ((given: boolean) => void)[] = [];

export function give(value: string | null): void {
  if (value !== null) token.value = value.trim();
  asking.value = null;
  for (const one of answer) one(value !== null);
  answer = [];
}

function ask(why: string): Promise<boolean> {
  asking.value = why;
  return new Promise((resolve) => answer.push(resolve));
}

/** Ask for a token, then run `again`, as long as the engine refuses for want of one. */
async function permitted(path: string, how: RequestInit): Promise<Response> {
  for (;;) {
    const headers = new Headers(how.headers);
    headers.set("Accept", headers.get("Accept") ?? "application/json");
    if (token.value) headers.set("Authorization", `Bearer ${token.value}`);
    const found = await fetch(path, { ...how, headers });
    if (found.status !== 401 && found.status !== 403) return found;
    const problem = await refusal(found.clone());
    if (how.signal?.aborted || !(await ask(problem.message))) return found;
  }
}

async function refusal(found: Response): Promise<Problem> {
  try {
    const told = (await found.json()) as { message: string; hint?: string };
    return new Problem(found.status, told.message, told.hint);
  } catch {
    return new Problem(found.status, `the engine answered ${found.status}`);
  }
}

export async function open(path: string, how: RequestInit = {}): Promise<Response> {
  const found = await permitted(path, how);
  if (!found.ok) throw await refusal(found);
  return found;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await open(path, { signal })).json()) as T;
}

/** Let the browser save what a path answers: a link of its own could not carry the token. */
export async function download(path: string, name: string): Promise<void> {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await (await open(path, { headers: { Accept: "*/*" } })).blob());
  link.download = name;
  link.dataset.out = "";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export async function post<T>(path: string, body?: unknown, method = "POST"): Promise<T> {
  const how: RequestInit = { method };
  if (body !== undefined) {
    how.body = JSON.stringify(body);
    how.headers = { "Content-Type": "application/json" };
  }
  return (await (await open(path, how)).json()) as T;
}

export const jobPath = (job: string, ...rest: string[]) =>
  ["/jobs", job, ...rest].map((one, at) => (at ? encodeURIComponent(one) : one)).join("/");
