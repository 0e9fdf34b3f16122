// How a version in the shadow of the running one compares.
import type { Comparison } from "../api";
import { clock, rows } from "../format";
import { Json } from "../parts";

const COUNTS = ["equal", "missing", "extra", "different", "waiting"] as const;

export function Shadow({ found }: { found: Comparison }) {
  const outputs = found.outputs ?? [];
  return (
    <section aria-label="shadow">
      <h2>
        Compared with the running version{" "}
        <span class="soft">
          {found.since ? `results from ${clock(found.since)}` : "it has not begun yet"}
          {found.until ? ` to ${clock(found.until)}` : ""}
        </span>
      </h2>
      {found.broken && <p class="finding bad">The shadow ended early: {found.broken}</p>}
      {outputs.length > 0 && (
        <table class="small">
          <thead>
            <tr>
              <th scope="col">Sink</th>
              {COUNTS.map((one) => (
                <th scope="col" class="number" key={one}>
                  {one}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {outputs.map((one) => (
              <tr key={one.name}>
                <th scope="row">{one.name}</th>
                {COUNTS.map((count) => (
                  <td key={count} class={`number ${count !== "equal" && count !== "waiting" && one[count] ? "bad-text" : ""}`}>
                    {rows(one[count] ?? 0)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {outputs.flatMap((output) =>
        (output.examples ?? []).map((one, at) => (
          <div class="letter" key={`${output.name} ${at}`}>
            <b>{one.kind}</b> in {output.name}
            {one.old && (
              <p>
                running: <Json value={one.old} />
              </p>
            )}
            {one.new && (
              <p>
                new: <Json value={one.new} />
              </p>
            )}
          </div>
        )),
      )}
      {(found.left_out ?? []).length > 0 && <p class="soft">Not in the shadow: {found.left_out!.join(", ")}.</p>}
      {(found.dead_letters ?? 0) > 0 && (
        <p class="finding warn">The new version would have made {rows(found.dead_letters!)} dead letters.</p>
      )}
    </section>
  );
}
