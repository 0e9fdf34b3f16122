// Asking for a switch: which flow, and how it takes over.
import { useState } from "preact/hooks";
import { type Switching, type SwitchPlanned, jobPath, post } from "../api";
import { Confirmed } from "../confirm";
import { Failure } from "../parts";
import { base64, zip } from "../zip";

const HOW = { switch: "at the next cut", share: "with a share of the keys", shadow: "in the shadow, to compare" };
type How = keyof typeof HOW;

async function packed(files: File[], flow: string): Promise<string> {
  const manifest = new TextEncoder().encode(JSON.stringify({ flow }));
  const all = new Map([["millstream.json", manifest]]);
  for (const one of files) all.set(one.name, new Uint8Array(await one.arrayBuffer()));
  return base64(zip(all));
}

interface Given {
  job: string;
  previous: boolean;
  planned: (found: SwitchPlanned) => void;
}

export function Ask({ job, previous, planned }: Given) {
  const [files, choose] = useState<File[]>([]);
  const [flow, name] = useState("");
  const [how, set] = useState<How>("switch");
  const [percent, give] = useState(10);
  const [minutes, last] = useState(10);
  const [request, ask] = useState<Switching | null>(null);
  const [plan, found] = useState<SwitchPlanned["plan"] | null>(null);
  const [error, fail] = useState<unknown>(null);
  const [working, work] = useState(false);
  const look = async (wanted: Switching) => {
    fail(null);
    work(true);
    ask(wanted);
    try {
      const answer = await post<SwitchPlanned>(jobPath(job, "switch", "plan"), wanted);
      found(answer.plan);
      planned(answer);
    } catch (problem) {
      fail(problem);
      ask(null);
    }
    work(false);
  };
  const submit = async () => {
    const wanted: Switching = { package: await packed(files, flow || files[0]!.name) };
    if (how === "share") wanted.share = percent / 100;
    if (how === "shadow") wanted.shadow = minutes * 60;
    await look(wanted);
  };
  const taken = (list: FileList | null) => {
    const chosen = [...(list ?? [])];
    choose(chosen);
    name(chosen[0]?.name ?? "");
    ask(null);
  };
  const lost = plan?.groups.flatMap((group) => group.stages.filter((one) => one.move === "dropped").map((one) => one.name)) ?? [];
  const consent = request?.consent ?? [];
  const toggle = (stage: string) => {
    const one = `drop:${stage}`;
    void look({ ...request, consent: consent.includes(one) ? consent.filter((other) => other !== one) : [...consent, one] });
  };
  return (
    <section aria-label="plan a switch">
      <h2>Replace the running version</h2>
      <form
        class="look"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <label>
          Flow, and modules beside it{" "}
          <input type="file" multiple accept=".py,.yaml,.yml,.json" onChange={(event) => taken(event.currentTarget.files)} />
        </label>
        {files.length > 1 && (
          <label>
            The flow is in{" "}
            <select value={flow} onChange={(event) => name(event.currentTarget.value)}>
              {files.map((one) => (
                <option key={one.name}>{one.name}</option>
              ))}
            </select>
          </label>
        )}
        <label>
          It takes over{" "}
          <select value={how} onChange={(event) => set(event.currentTarget.value as How)}>
            {Object.entries(HOW).map(([value, text]) => (
              <option value={value} key={value}>
                {text}
              </option>
            ))}
          </select>
        </label>
        {how === "share" && (
          <label>
            of{" "}
            <input type="number" min="1" max="100" value={percent} onInput={(event) => give(event.currentTarget.valueAsNumber)} /> %
          </label>
        )}
        {how === "shadow" && (
          <label>
            for{" "}
            <input type="number" min="1" max="10000" value={minutes} onInput={(event) => last(event.currentTarget.valueAsNumber)} /> min
          </label>
        )}
        <button type="submit" class="main" disabled={working || files.length === 0}>
          {working ? "Planning …" : "Show the plan"}
        </button>
        {previous && (
          <button type="button" disabled={working} onClick={() => look({ back: true })}>
            Plan the way back
          </button>
        )}
      </form>
      <p class="soft">
        The plan changes nothing. On the command line: <code>millstream switch {job} flow.py --plan</code>
      </p>
      {error !== null && <Failure error={error} />}
      {request && lost.length > 0 && (
        <fieldset>
          <legend>State that would be lost</legend>
          {lost.map((one) => (
            <label key={one}>
              <input type="checkbox" checked={consent.includes(`drop:${one}`)} onChange={() => toggle(one)} /> I agree to lose the
              state of {one}
            </label>
          ))}
        </fieldset>
      )}
      {request && !working && plan?.possible && plan.units.length + plan.grown.length > 0 && (
        <Confirmed
          main
          label="Begin the switch"
          title="Begin the switch?"
          work={async () => {
            await post(jobPath(job, "switch"), request);
            ask(null);
          }}
        >
          <p>{begins(request)}</p>
        </Confirmed>
      )}
    </section>
  );
}

function begins(request: Switching): string {
  if (request.shadow) return "The new version runs beside the running one and is compared with it. Its results go nowhere.";
  if (request.share)
    return `From the cut on, ${Math.round(request.share * 100)} % of the keys are the new version's. You can change that, or go back.`;
  const which = request.back ? "the version before" : "the new version";
  return `From the cut on, results are those of ${which}. You can abort until the cut, and switch back after it.`;
}
