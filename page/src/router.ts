// Where one is: the address of a page is that of the data that it shows.
import { signal } from "@preact/signals";

export const path = signal(location.pathname);

export function go(href: string): void {
  history.pushState(null, "", href);
  path.value = location.pathname;
  scrollTo(0, 0);
}

export function start(): void {
  addEventListener("popstate", () => (path.value = location.pathname));
  document.addEventListener("click", (event) => {
    const link = (event.target as Element).closest("a");
    const plain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
    if (!link || !plain || link.target || link.origin !== location.origin || "out" in link.dataset) return;
    event.preventDefault();
    go(link.href);
  });
}
