// The newest rows of a journal.
import { type JournalDetail, type JournalRows, get, jobPath } from "./api";

export type Row = Record<string, unknown>;

/** The newest rows of all partitions of a journal, as many of each. */
export async function newest(job: string, journal: string, count: number, signal?: AbortSignal): Promise<Row[]> {
  const { partitions } = await get<JournalDetail>(jobPath(job, "journals", journal), signal);
  const each = Math.ceil(count / Math.max(1, partitions.length));
  const pages = await Promise.all(
    partitions.map((one) => {
      const query = `partition=${one.partition}&from=${Math.max(one.begin, one.end - each)}&limit=${each}`;
      return get<JournalRows>(`${jobPath(job, "journals", journal, "rows")}?${query}`, signal);
    }),
  );
  return pages.flatMap((page) => page.rows.map((one) => one.row as Row));
}
