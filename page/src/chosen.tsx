// A node of the graph that was chosen: how the flow describes it, its columns, its automaton, its last rows.
import { useState } from "preact/hooks";
import { type Drawing, type GraphNode, type PatternRuns, jobPath } from "./api";
import { rows } from "./format";
import { newest, type Row } from "./newest";
import { Failure, Json, useAttempt, useLoaded } from "./parts";
import { Automaton } from "./patterns/automaton";

export function Chosen({ node, drawing, job }: { node: GraphNode; drawing: Drawing; job: string }) {
  const columns = Object.entries(node.columns ?? {});
  return (
    <section class="chosen" aria-label={`${node.kind} ${node.name}`}>
      <h2>
        {node.kind} {node.name} <span class="soft">{node.detail}</span>
      </h2>
      {node.kind === "journal" && (
        <p>
          <a href={jobPath(job, "journals", node.name)}>Look into the journal</a>
        </p>
      )}
      {node.kind === "stage" && node.detail.startsWith("match") && <Patterns job={job} stage={node.name} />}
      <div class="columns">
        {node.text ? (
          <pre>{node.text}</pre>
        ) : (
          node.kind === "stage" && <p class="soft">It calls a function: its code is in the flow's file.</p>
        )}
        {columns.length > 0 && (
          <table class="small">
            <thead>
              <tr>
                <th scope="col">Column</th>
                <th scope="col">Type</th>
              </tr>
            </thead>
            <tbody>
              {columns.map(([column, type]) => (
                <tr key={column}>
                  <td>{column}</td>
                  <td class="soft">{type}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </div>
      <LastRows key={node.id} job={job} {...around(node, drawing)} />
    </section>
  );
}

function Patterns({ job, stage }: { job: string; stage: string }) {
  const found = useLoaded<PatternRuns[]>(jobPath(job, "patterns"), 5);
  const own = (found.value ?? []).filter((one) => one.stage === stage);
  return (
    <>
      {own.map((one) => (
        <Automaton key={one.pattern} it={one} />
      ))}
      <p>
        <a href={jobPath(job, "patterns")}>Its matches, and the runs that wait</a>
      </p>
    </>
  );
}

interface Around {
  /** The journals whose rows go in, and those that rows come out to. */
  into: string[];
  out: string[];
  /** Whether rows also go to sinks, of which an engine keeps none. */
  sinks: boolean;
}

const named = (id: string) => id.slice(id.indexOf(" ") + 1);

function around(node: GraphNode, { arrows }: Drawing): Around {
  if (node.kind === "journal") return { into: [], out: [node.name], sinks: false };
  const journals = (ids: string[]) => ids.filter((one) => one.startsWith("journal ")).map(named);
  const writers = arrows.filter((one) => one.target === node.id).map((one) => one.source);
  const group = node.kind === "sink" ? (writers[0] ?? "") : `group ${node.kind === "group" ? node.name : node.group}`;
  const to = arrows.filter((one) => one.source === group).map((one) => one.target);
  const from = arrows.filter((one) => one.target === group).map((one) => one.source);
  return { into: journals(from), out: journals(to), sinks: to.some((one) => one.startsWith("sink ")) };
}

const COUNT = 5;

/** The last rows that went into its group and came out of it, as far as journals have them. */
function LastRows({ job, into, out, sinks }: { job: string } & Around) {
  const [found, show] = useState<{ title: string; rows: Row[] }[] | null>(null);
  const { error, working, attempt } = useAttempt();
  const look = () =>
    attempt(async () => {
      const each = [...into.map((one) => ["in", one]), ...out.map((one) => [into.length ? "out" : "", one])];
      show(
        await Promise.all(
          each.map(async ([way, one]) => ({ title: `${way ? `${way}: ` : ""}journal ${one}`, rows: await newest(job, one!, COUNT) })),
        ),
      );
    });
  if (into.length + out.length === 0) return null;
  return (
    <>
      <div class="actions">
        <button type="button" disabled={working} onClick={look}>
          {found ? "Show the last rows again" : into.length ? "Show the last rows in and out" : "Show the last rows"}
        </button>
      </div>
      {error !== null && <Failure error={error} />}
      {found?.map((one) => (
        <Lines key={one.title} {...one} />
      ))}
      {found && sinks && (
        <p class="soft">
          Rows that go to sinks are not kept here. To see them too, write them to a journal: <code>.journal("name")</code>
        </p>
      )}
    </>
  );
}

function Lines({ title, rows: all }: { title: string; rows: Row[] }) {
  const columns = Object.keys(all[0] ?? {});
  return (
    <>
      <h3>
        {title} <span class="soft">{all.length ? `${rows(all.length)} newest` : "is empty"}</span>
      </h3>
      {all.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`rows ${title}`}>
          <table class="rows">
            <thead>
              <tr>
                {columns.map((one) => (
                  <th scope="col" key={one}>
                    {one}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {all.map((row, at) => (
                <tr key={at}>
                  {columns.map((one) => (
                    <td key={one}>
                      <Json value={row[one]} />
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
