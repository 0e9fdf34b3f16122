// What a switch would do: a table, both graphs with what differs, and what stands in its way.
import type { Change, Drawing, SwitchPlan, SwitchPlanned } from "../api";
import { clock, duration } from "../format";
import { Sketch } from "../graph";
import { Table } from "../parts";

const LEVELS: Record<Change, string> = { kept: "", replaced: "warn", new: "ok", removed: "bad" };

export function PlanView({ planned, running }: { planned: SwitchPlanned; running?: Drawing }) {
  const { plan } = planned;
  const nothing = plan.possible && plan.units.length === 0 && plan.grown.length === 0;
  return (
    <section aria-label="plan">
      <h2>
        The plan{" "}
        <span class="soft">
          {plan.mode === "switch" ? "" : `with ${plan.mode === "share" ? "a share of the keys" : "a shadow"}, `}
          {planned.at && clock(planned.at)}
        </span>
      </h2>
      {plan.obstacles.map((one) => (
        <p class="finding bad" key={one.fact}>
          <b>Impossible:</b> {one.fact}. <span class="soft">{one.hint}</span>
        </p>
      ))}
      {nothing && <p class="finding warn">The new version means the same as the running one: there is nothing to switch.</p>}
      <Changes plan={plan} />
      <ul class="notes">
        {plan.units.length > 0 && (
          <li>
            The cut will be at a multiple of {duration(plan.step)} of event time. Both versions run side by side for{" "}
            {plan.overlap === null ? "an unknown time" : plan.overlap ? `about ${duration(plan.overlap)}` : "a moment"}.
          </li>
        )}
        {[...plan.grown, ...plan.notes].map((one) => (
          <li key={one}>{one}</li>
        ))}
      </ul>
      {planned.graph && !nothing && (
        <div class="sketches">
          {running && <Sketch drawing={running} title="Running version" mark={(node) => changeOf(plan, node, "removed")} />}
          <Sketch drawing={planned.graph} title="New version" mark={(node) => changeOf(plan, node, "new")} />
        </div>
      )}
    </section>
  );
}

interface Drawn {
  kind: string;
  name: string;
  group?: string | null;
}

/** What becomes of a node, if a version that has `alone` shows it. */
function changeOf(plan: SwitchPlan, node: Drawn, alone: Change): string {
  const group = plan.groups.find((one) => one.name === (node.kind === "group" ? node.name : node.group));
  const found = node.kind === "stage" ? group?.stages.find((one) => one.name === node.name) : group;
  if (!found || !["group", "stage"].includes(node.kind)) return "";
  return found.change === "replaced" || found.change === alone ? found.change : "";
}

function Changes({ plan }: { plan: SwitchPlan }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="changes">
      <Table class="small">
        <thead>
          <tr>
            <th scope="col">Group</th>
            <th scope="col">Stage</th>
            <th scope="col">Change</th>
            <th scope="col">State</th>
            <th scope="col">What happens</th>
          </tr>
        </thead>
        <tbody>
          {plan.groups.map((group) => {
            const stages = group.change === "kept" ? [] : group.stages;
            const shown = stages.filter((one) => one.change !== "kept" || one.state);
            if (shown.length === 0)
              return (
                <tr key={group.name}>
                  <th scope="row">{group.name}</th>
                  <td>all</td>
                  <td>
                    <span class={`state ${LEVELS[group.change]}`}>{group.change}</span>
                  </td>
                  <td>–</td>
                  <td>{group.change === "kept" ? "goes on untouched" : <Lines lines={group.differences} />}</td>
                </tr>
              );
            return shown.map((stage) => (
              <tr key={`${group.name} ${stage.name}`}>
                <th scope="row">{group.name}</th>
                <td>{stage.name}</td>
                <td>
                  <span class={`state ${LEVELS[stage.change]}`}>{stage.change}</span>
                </td>
                <td>{stage.state || "–"}</td>
                <td class={stage.move === "dropped" ? "bad-text" : ""}>
                  {stage.how}
                  <Lines lines={stage.differences} />
                </td>
              </tr>
            ));
          })}
        </tbody>
      </Table>
    </div>
  );
}

function Lines({ lines }: { lines: string[] }) {
  return (
    <>
      {lines.map((one) => (
        <code class="difference" key={one}>
          {one}
        </code>
      ))}
    </>
  );
}
