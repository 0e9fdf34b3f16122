// A button that first says what will happen.
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { Failure } from "./parts";

interface Given {
  label: string;
  title: string;
  /** What will happen. */
  children: ComponentChildren;
  work: () => Promise<unknown>;
  main?: boolean;
}

export function Confirmed({ label, title, children, work, main }: Given) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [error, fail] = useState<unknown>(null);
  const [working, set] = useState(false);
  const act = async () => {
    dialog.current?.close();
    fail(null);
    set(true);
    try {
      await work();
    } catch (problem) {
      fail(problem);
    }
    set(false);
  };
  return (
    <>
      <button type="button" class={main ? "main" : ""} disabled={working} onClick={() => dialog.current?.showModal()}>
        {label}
      </button>
      {error !== null && <Failure error={error} />}
      <dialog ref={dialog} aria-label={title}>
        <h2>{title}</h2>
        {children}
        <div class="actions">
          <button type="button" autofocus onClick={() => dialog.current?.close()}>
            No
          </button>
          <button type="button" class="main" onClick={act}>
            Yes
          </button>
        </div>
      </dialog>
    </>
  );
}
