// Dead letters that wait, page by page.
import { type Letter, type LetterPage, get, jobPath } from "./api";

const PAGE = 1000;

/** The oldest letters that wait, as many pages of them as are wanted, and whether there are more. */
export async function waiting(job: string, pages: number, origin?: string, signal?: AbortSignal): Promise<{ letters: Letter[]; more: boolean }> {
  const letters: Letter[] = [];
  let from: number | null = 0;
  for (let page = 0; page < pages && from !== null; page++) {
    const query = new URLSearchParams({ state: "waiting", from: String(from), limit: String(PAGE), ...(origin ? { origin } : {}) });
    const found: LetterPage = await get<LetterPage>(`${jobPath(job, "dead")}?${query}`, signal);
    letters.push(...found.letters);
    from = found.next;
  }
  return { letters, more: from !== null };
}

/** Letters in as many parts as requests may have. */
export function parts(ids: string[]): string[][] {
  const found: string[][] = [];
  for (let at = 0; at < ids.length; at += PAGE) found.push(ids.slice(at, at + PAGE));
  return found;
}
