// Where the time of a job's groups goes.
import type { Pulse } from "./api";
import { busy } from "./graph";

/** In the order in which they come in a batch, with what is behind them. */
export const CAUSES: Record<string, string> = {
  reading: "Spark asks the journals what is new",
  planning: "Spark analyses and prepares the batch",
  waiting: "another version publishes first",
  running: "Spark's own work: reading rows, SQL, shuffles, starting tasks",
  python: "Python functions of the flow",
  matching: "patterns",
  programs: "programs of actions",
  state: "reading and writing state",
  staging: "results are written, not yet visible",
  publishing: "results become visible",
  commit: "offsets and decisions are synced to disk",
};

/** Each has a colour of its own, in tables and plots. */
export const HUES: Record<string, number> = {
  reading: 4,
  planning: 6,
  waiting: 11,
  running: 1,
  python: 7,
  matching: 8,
  programs: 9,
  state: 3,
  staging: 10,
  publishing: 2,
  commit: 5,
};

const percent = (part: number) => `${Math.round(part * 100)} %`;

/** Parts of the last ten seconds, as a bar and as numbers. */
export function Causes({ pulse }: { pulse: Pulse }) {
  const groups = Object.entries(pulse.rates.spent);
  const names = Object.keys(CAUSES);
  const seen = names.filter((one) => groups.some(([, shares]) => (shares[one] ?? 0) >= 0.005));
  if (groups.length === 0) return null;
  return (
    <section>
      <h2>
        Where the time goes <span class="soft">parts of the last 10 s</span>
      </h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="where the time goes">
        <table class="small">
          <thead>
            <tr>
              <th scope="col">Group</th>
              <th scope="col" class="number">Busy</th>
              <th scope="col">By cause</th>
              {seen.map((one) => (
                <th scope="col" class="number" key={one} title={CAUSES[one]}>
                  <svg class="cause" viewBox="0 0 10 10" aria-hidden="true">
                    <rect class={`cause-${HUES[one]}`} width="10" height="10" rx="2" />
                  </svg>
                  {one}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {groups.map(([name, shares]) => {
              let before = 0;
              return (
                <tr key={name}>
                  <td>{name}</td>
                  <td class="number">{percent(busy(pulse, name))}</td>
                  <td>
                    <svg class="shares" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
                      {seen.map((one) => {
                        const x = before;
                        before += (shares[one] ?? 0) * 100;
                        return <rect key={one} class={`cause-${HUES[one]}`} x={x} width={before - x} height="10" />;
                      })}
                    </svg>
                  </td>
                  {seen.map((one) => (
                    <td class="number" key={one}>
                      {shares[one] ? percent(shares[one]) : "–"}
                    </td>
                  ))}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}
