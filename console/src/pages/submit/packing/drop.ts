/** Reads what was dropped on the page: files, and folders with all that lies in them. */

import type { Picked } from "./pack";

export interface Dropped {
  picked: Picked[];
  isFolder: boolean;
}

/** Return what was dropped. Must be called while the event lasts. */
export async function readDropped(transfer: DataTransfer): Promise<Dropped> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry != null);
  if (entries.length === 0) {
    return { picked: [...transfer.files].map((file) => ({ path: file.name, file })), isFolder: false };
  }
  const picked: Picked[] = [];
  for (const entry of entries) await walk(entry, "", picked);
  return { picked, isFolder: entries.length === 1 && entries[0]?.isDirectory === true };
}

async function walk(entry: FileSystemEntry, folder: string, picked: Picked[]): Promise<void> {
  const path = folder ? `${folder}/${entry.name}` : entry.name;
  if (entry.isFile) {
    const file = await new Promise<File>((found, failed) => (entry as FileSystemFileEntry).file(found, failed));
    picked.push({ path, file });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) {
    // A reader tells some at a time, and none at the end.
    const some = await new Promise<FileSystemEntry[]>((found, failed) => reader.readEntries(found, failed));
    if (some.length === 0) return;
    for (const inner of some) await walk(inner, path, picked);
  }
}
