// Programs: those that the engine keeps for flows, and the runtimes that run programs now.
import { type Binary, jobPath } from "../api";
import { bytes, clock, rows } from "../format";
import * as live from "../live";
import { Empty, Failure, useLoaded } from "../parts";
import { mainRoute } from "../route";

export default mainRoute({ part: "actions", title: "Programs", order: 20, engine: true, show: () => <Programs /> });

const LEVEL: Record<string, string> = { running: "ok", waiting: "warn", silent: "bad" };

function Programs() {
  const found = useLoaded<Binary[]>("/actions", 10);
  const runtimes = [...live.jobs.value.values()].flatMap(({ job }) => job.runtimes.map((one) => ({ job: job.name, ...one })));
  return (
    <>
      <h1>Programs</h1>
      <h2>
        Runtimes <span class="soft">what they print is in the log of their job</span>
      </h2>
      {runtimes.length === 0 ? (
        <p class="soft">No job of this engine has runtimes. A scheme has them: nodes that run programs outside of Spark.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="runtimes">
          <table class="wide">
            <thead>
              <tr>
                <th scope="col">Node</th>
                <th scope="col">Job</th>
                <th scope="col">Role</th>
                <th scope="col">State</th>
                <th scope="col">Address</th>
                <th scope="col" class="number">Restarts</th>
                <th scope="col" class="number">Oldest message</th>
                <th scope="col" class="number">Queues set aside</th>
                <th scope="col" class="number">Process</th>
              </tr>
            </thead>
            <tbody>
              {runtimes.map((one) => (
                <tr key={`${one.job} ${one.node}`}>
                  <th scope="row">{one.node}</th>
                  <td>
                    <a href={jobPath(one.job, "logs")}>{one.job}</a>
                  </td>
                  <td>{one.role}</td>
                  <td>
                    <span class={`state ${LEVEL[one.state] ?? "calm"}`}>{one.state}</span>
                  </td>
                  <td>{one.address ?? "–"}</td>
                  <td class="number">{rows(one.restarts ?? 0)}</td>
                  <td class="number">{one.oldest ? rows(one.oldest) : "–"}</td>
                  <td class="number">{rows(one.set_aside ?? 0)}</td>
                  <td class="number">{one.pid ?? "–"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <h2>
        Kept programs <span class="soft">flows name them, and get the newest version</span>
      </h2>
      {found.error && !found.value ? (
        <Failure error={found.error} />
      ) : found.value?.length === 0 ? (
        <Empty title="This engine keeps no programs.">
          <p>
            Add one: <code>millstream actions add NAME FILE --engine {live.engine.value?.url}</code>
          </p>
        </Empty>
      ) : (
        found.value && (
          <div class="scroll" tabIndex={0} role="region" aria-label="kept programs">
            <table class="wide">
              <thead>
                <tr>
                  <th scope="col">Program</th>
                  <th scope="col" class="number">Version</th>
                  <th scope="col" class="number">Size</th>
                  <th scope="col">Added</th>
                  <th scope="col">SHA-256</th>
                  <th scope="col">Jobs that run it</th>
                </tr>
              </thead>
              <tbody>
                {found.value.map((one) => (
                  <tr key={`${one.name} ${one.version}`}>
                    <th scope="row">{one.name}</th>
                    <td class="number">{rows(one.version)}</td>
                    <td class="number">{bytes(one.bytes)}</td>
                    <td>{clock(one.added_at)}</td>
                    <td>
                      <code>{one.sha256.slice(0, 12)}</code>
                    </td>
                    <td>
                      {(one.jobs ?? []).length === 0
                        ? "–"
                        : one.jobs!.map((job) => (
                            <a class="reader" key={job} href={jobPath(job)}>
                              {job}
                            </a>
                          ))}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )
      )}
    </>
  );
}
