// The console: which page is shown, and whether the engine answers.
import { render } from "preact";
import { useEffect } from "preact/hooks";
import "./style.css";
import icon from "./icon.svg";
import { duration } from "./format";
import * as live from "./live";
import * as router from "./router";
import routes from "routes";
import { JobPage } from "./job";
import { Empty } from "./parts";
import { shown } from "./route";
import { TokenDialog } from "./token";

const pages = routes.filter((one) => one.kind === "main");

function Connection() {
  const state = live.connection.value;
  if (state === "lost")
    return (
      <div class="lost" role="alert">
        <b>The engine does not answer.</b> What you see is {duration(Math.max(0, Date.now() / 1000 - live.now.value))} old;
        this page goes on by itself when the engine is back.
      </div>
    );
  if (state === "refused")
    return (
      <div class="lost" role="alert">
        <b>The engine shows nothing without a token.</b> Load the page again to give one.
      </div>
    );
  return null;
}

function Header() {
  const engine = live.engine.value;
  const state = live.connection.value;
  return (
    <header>
      <a href="/" class="brand">
        <img src={icon} alt="" width="24" height="24" /> Millstream
      </a>
      <nav aria-label="main">
        {pages.filter((one) => shown(one, engine?.single ?? false)).map((one) => (
          <a key={one.part} href={`/${one.part}`} aria-current={router.path.value === `/${one.part}` ? "page" : undefined}>
            {one.title}
          </a>
        ))}
        <a href="/docs" data-out>
          API
        </a>
      </nav>
      <span class="who">
        {engine && `${engine.single ? "one run, " : ""}${engine.version}${engine.of > 1 ? `, node ${engine.node} of ${engine.of}` : ""}`}
        <span class={`dot ${state}`} role="status" aria-label={`engine: ${state}`} title={state} />
      </span>
    </header>
  );
}

function Page() {
  const path = router.path.value;
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  useEffect(() => {
    document.title = parts[1] ? `${parts[1]} · Millstream` : "Millstream";
  }, [path]);
  if (parts[0] === "jobs" && parts.length > 1)
    return <JobPage name={parts[1]!} part={parts[2] ?? ""} rest={parts.slice(3)} />;
  const wanted = parts[0] === "jobs" ? "" : (parts[0] ?? "");
  const found = pages.find((one) => one.part === wanted);
  if (found) return <>{found.show()}</>;
  return (
    <Empty title="There is nothing at this address.">
      <p>
        <a href="/">All jobs</a>
      </p>
    </Empty>
  );
}

function App() {
  return (
    <>
      <a class="skip" href="#content" data-out>
        Skip to the content
      </a>
      <Header />
      <Connection />
      <main id="content" tabIndex={-1}>
        <Page />
      </main>
      <TokenDialog />
    </>
  );
}

router.start();
live.start();
render(<App />, document.getElementById("page")!);
