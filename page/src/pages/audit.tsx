// Who changed what, and who was refused.
import { useState } from "preact/hooks";
import { type AuditEntry } from "../api";
import { clock } from "../format";
import * as live from "../live";
import { Empty, Failure, Table, useLoaded } from "../parts";
import { mainRoute } from "../route";

export default mainRoute({
  part: "audit",
  title: "Audit",
  order: 40,
  engine: true,
  show: () => <Audit />,
});

function Audit() {
  const found = useLoaded<AuditEntry[]>("/audit?limit=500");
  const [wanted, want] = useState("");
  if (found.error && !found.value) return <Failure error={found.error} />;
  if (!found.value) return null;
  const all = [...found.value].sort((a, b) => (a.at < b.at ? 1 : -1));
  const shown = wanted ? all.filter((one) => JSON.stringify(one).toLowerCase().includes(wanted.toLowerCase())) : all;
  return (
    <>
      <h1>Audit</h1>
      {all.length === 0 ? (
        <Empty title="Nobody has changed anything yet.">
          <p>
            Deployments, drains, switches, replays and what was refused show up here. Begin with one:{" "}
            <code>millstream deploy flow.py --engine {live.engine.value?.url ?? "URL"}</code>
          </p>
        </Empty>
      ) : (
        <>
          <form class="look" onSubmit={(event) => event.preventDefault()}>
            <label>
              Search <input type="search" value={wanted} onInput={(event) => want(event.currentTarget.value)} />
            </label>
          </form>
          {shown.length === 0 && <Empty title="No entry of the newest 500 has this text." />}
          <div class="scroll" tabIndex={0} role="region" aria-label="audit log">
            <Table class="wide">
              <thead>
                <tr>
                  <th scope="col">When</th>
                  <th scope="col">Who</th>
                  <th scope="col">From</th>
                  <th scope="col">What</th>
                  <th scope="col">Job</th>
                  <th scope="col">Outcome</th>
                  <th scope="col">Reason</th>
                </tr>
              </thead>
              <tbody>
                {shown.map((one, at) => (
                  <tr key={at}>
                    <td>{clock(one.at)}</td>
                    <td>{one.who}</td>
                    <td>{one.from}</td>
                    <td>{one.what}</td>
                    <td>{one.job ?? "–"}</td>
                    <td>
                      <span class={`state ${one.outcome === "done" ? "ok" : "bad"}`}>{one.outcome}</span>
                    </td>
                    <td>{one.reason}</td>
                  </tr>
                ))}
              </tbody>
            </Table>
          </div>
        </>
      )}
    </>
  );
}
