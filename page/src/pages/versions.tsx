// Versions of a job, and how the switch to each of them ended.
import { type Pulse, type Version, jobPath } from "../api";
import { clock } from "../format";
import { Empty, Failure, Table, useLoaded } from "../parts";
import { jobRoute } from "../route";

export default jobRoute({
  part: "versions",
  title: "Versions",
  order: 60,
  engine: true,
  show: ({ pulse }) => <Versions pulse={pulse} />,
});

function Versions({ pulse }: { pulse: Pulse }) {
  const { job } = pulse;
  const found = useLoaded<Version[]>(`${jobPath(job.name, "versions")}#${job.version}${job.switch?.phase}${job.switch?.state}`);
  if (found.error && !found.value) return <Failure error={found.error} />;
  return (
    <>
      {!job.switch && (
        <Empty title="This job has not been switched.">
          <p>
            <a href={jobPath(job.name, "switch")}>Replace the running version</a>, and see first what would happen.
          </p>
        </Empty>
      )}
      {found.value && (
        <Table class="wide">
          <thead>
            <tr>
              <th scope="col">Version</th>
              <th scope="col">Flow</th>
              <th scope="col">Added</th>
              <th scope="col">Ran from</th>
              <th scope="col">Switch</th>
            </tr>
          </thead>
          <tbody>
            {[...found.value].reverse().map((one) => (
              <tr key={one.version}>
                <th scope="row">
                  {one.version} {one.running && <span class="state ok">running</span>}
                </th>
                <td>{one.flow}</td>
                <td>{clock(one.added_at)}</td>
                <td>{one.current_at ? clock(one.current_at) : "–"}</td>
                <td>
                  {one.switch ? one.switch.state : "–"}
                  {one.back_to && <span class="soft"> back to {one.back_to}</span>}
                  {one.switch?.why && <span class="finding warn">{one.switch.why}</span>}
                </td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
    </>
  );
}
