// Patterns as they match: where live runs wait, the latest matches by key, and whose runs wait longest.
import { useState } from "preact/hooks";
import { type PatternRuns, jobPath } from "../api";
import { clock, duration, rows, seconds } from "../format";
import * as live from "../live";
import { newest } from "../newest";
import { Automaton } from "../patterns/automaton";
import { type Match, matchesOf, Timeline } from "../patterns/timeline";
import { Empty, Failure, Json, Table, useLoaded, useRepeated } from "../parts";
import { jobRoute } from "../route";

export default jobRoute({
  part: "patterns",
  title: "Matches",
  order: 15,
  show: ({ pulse }) => <Patterns key={pulse.job.name} job={pulse.job.name} />,
});

function Patterns({ job }: { job: string }) {
  const found = useLoaded<PatternRuns[]>(jobPath(job, "patterns"), 5);
  if (found.error && !found.value) return <Failure error={found.error} />;
  if (!found.value) return <Empty title="The driver reads its patterns …" />;
  if (found.value.length === 0)
    return (
      <Empty title="This job matches no patterns.">
        <p>
          A stage <code>match</code> finds them: <code>stream.match("name", pattern)</code>
        </p>
      </Empty>
    );
  return (
    <>
      {found.value.map((one) => (
        <One key={`${one.group}.${one.stage}.${one.pattern}`} job={job} it={one} />
      ))}
    </>
  );
}

function One({ job, it }: { job: string; it: PatternRuns }) {
  const oldest = it.oldest ?? [];
  return (
    <section aria-label={`pattern ${it.pattern}`}>
      <h2>
        {it.pattern} <span class="soft">stage {it.stage}; {it.about}</span>
      </h2>
      <p>
        {it.unknown ? (
          <span class="finding warn">Live runs are not known: {it.unknown}</span>
        ) : (
          <>
            <b>{rows(it.runs ?? 0)}</b> live {it.runs === 1 ? "run" : "runs"}{" "}
            <span class="soft">as of batch {rows(it.batch ?? 0)}; the numbers stand where they wait</span>
          </>
        )}
      </p>
      <Automaton it={it} />
      <Matches job={job} it={it} />
      {oldest.length > 0 && (
        <details>
          <summary>Runs that wait longest, by key</summary>
          <div class="scroll" tabIndex={0} role="region" aria-label={`live runs of ${it.pattern}`}>
            <Table class="small">
              <thead>
                <tr>
                  <th scope="col">Key</th>
                  <th scope="col" class="number">Runs</th>
                  <th scope="col">Wait for</th>
                  <th scope="col">First event</th>
                  <th scope="col">Last event</th>
                  <th scope="col" class="number">Since the first</th>
                </tr>
              </thead>
              <tbody>
                {oldest.map((one) => (
                  <tr key={one.key}>
                    <td>{one.key}</td>
                    <td class="number">{rows(one.runs)}</td>
                    <td>{awaited(one.waits_for ?? {})}</td>
                    <td>{clock(one.since)}</td>
                    <td>{clock(one.last_at)}</td>
                    <td class="number">{duration(Math.max(0, live.now.value - seconds(one.since)))}</td>
                  </tr>
                ))}
              </tbody>
            </Table>
          </div>
        </details>
      )}
    </section>
  );
}

/** What the runs of a key wait for: blocks of the pattern, with the number of runs if these differ. */
function awaited(blocks: Record<string, number>): string {
  const all = Object.entries(blocks);
  return all.map(([block, runs]) => `${all.length > 1 ? `${rows(runs)}: ` : ""}${block || "time to pass"}`).join(", ");
}

const NEWEST = 100;

function Matches({ job, it }: { job: string; it: PatternRuns }) {
  const journal = it.journal ?? null;
  const found = useRepeated(journal && `${job}/${journal}`, 5, (signal) => newest(job, journal!, NEWEST, signal));
  const [chosen, choose] = useState<Match | null>(null);
  if (journal === null)
    return (
      <p class="soft">
        Its matches go to sinks. To see the latest ones here, write them to a journal as well: <code>.journal("name")</code>
      </p>
    );
  if (found.error && !found.value) return <Failure error={found.error} />;
  if (!found.value) return null;
  const several = new Set(found.value.map((row) => row.pattern)).size > 1;
  const own = found.value.filter((row) => !several || row.pattern === it.pattern);
  const matches = matchesOf(own, it.by ?? []).sort((a, b) => a.until - b.until);
  if (found.value.length > 0 && matches.length === 0)
    return (
      <p class="soft">
        Its matches have no times, so there is no timeline. Emit those of its events: <code>.match(..., emit="block.at AS name")</code>
      </p>
    );
  if (matches.length === 0)
    return (
      <Empty title="There is no match yet.">
        <p>
          The numbers above show how far runs have got. <code>pattern.explain()</code> tells what each state waits for.
        </p>
      </Empty>
    );
  return (
    <>
      <h3>
        Latest matches <span class="soft">{rows(matches.length)}, a lane for each key; dashed ones have timed out</span>
      </h3>
      <Timeline matches={matches} chosen={chosen} choose={choose} />
      {chosen && (
        <section class="chosen" aria-label="match">
          <h3>
            {chosen.lane} {chosen.timedOut && <span class="state warn">timed out</span>}
          </h3>
          <dl class="facts">
            {Object.entries(chosen.row).map(([name, value]) => (
              <div class="fact" key={name}>
                <dt>{name}</dt>
                <dd>
                  <Json value={value} />
                </dd>
              </div>
            ))}
          </dl>
          <p class="soft">
            These are the columns that the stage emits. To see more of its events here, emit more of their columns:{" "}
            <code>.match(..., emit="block.column AS name")</code>
          </p>
        </section>
      )}
    </>
  );
}
