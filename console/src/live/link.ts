/**
 * One link to the server's events: a stream while it can be had, else a question every few seconds, from the same place
 * in the one sequence, so that nothing is left out. Says when the server is away. Knows nothing of React.
 */

import { API, send } from "@/api/client";
import { Problem } from "@/api/problems";
import type { PlatformEvent } from "@/api/types";

export const POLL_EVERY_S = 5;
const RETRY_STREAM_EVERY_S = 5;
const MAX_EVENTS_PER_POLL = 1000;

export type LinkState = { is: "starting" | "live" | "polling" } | { is: "away"; since: number };

export interface LinkHears {
  onEvent: (event: PlatformEvent) => void;
  onState: (state: LinkState) => void;
  /** The link is there (again): whatever was asked before this moment may be old. */
  onLinked: () => void;
  /** The server's store is an older one, as from a backup: nothing that was asked before holds. */
  onAnew: () => void;
}

interface Parts {
  openStream: (address: string) => EventSource;
  read: (address: string) => Promise<{ items: PlatformEvent[]; after: number }>;
  now: () => number;
}

const PARTS: Parts = {
  openStream: (address) => new EventSource(address),
  read: async (address) => (await send("GET", address)).json(),
  now: () => Date.now() / 1000,
};

const KINDS = [
  "stage",
  "changed",
  "decision",
  "granted",
  "released",
  "left",
  "driver",
  "queue",
  "slot",
  "lease",
  "purged",
  "restored",
  "project",
];

/** Follows all events that its user may see, until it is closed. */
export class Link {
  private last: number | null = null;
  private stream: EventSource | null = null;
  private state: LinkState = { is: "starting" };
  private pollTimer: ReturnType<typeof setTimeout> | undefined;
  private streamTimer: ReturnType<typeof setTimeout> | undefined;
  private isStreaming = false;
  private isResting = false;
  private isClosed = false;
  private readonly hears: LinkHears;
  private readonly parts: Parts;

  constructor(hears: LinkHears, parts: Partial<Parts> = {}) {
    this.hears = hears;
    this.parts = { ...PARTS, ...parts };
  }

  open(): void {
    this.openStream();
  }

  close(): void {
    this.isClosed = true;
    clearTimeout(this.pollTimer);
    clearTimeout(this.streamTimer);
    this.stream?.close();
  }

  /** Hold no connection for now, as while the page cannot be seen: browsers have few for one server. */
  rest(): void {
    if (this.isClosed || this.isResting) return;
    this.isResting = true;
    this.isStreaming = false;
    clearTimeout(this.pollTimer);
    clearTimeout(this.streamTimer);
    this.pollTimer = undefined;
    this.stream?.close();
    this.stream = null;
  }

  /** Go on after the last event that was heard. */
  wake(): void {
    if (this.isClosed || !this.isResting) return;
    this.isResting = false;
    this.openStream();
  }

  /** Ask at once, as when the page is looked at again after a while. */
  hurry(): void {
    if (this.isSilent() || this.isStreaming || this.state.is === "starting") return;
    clearTimeout(this.pollTimer);
    void this.poll();
  }

  private isSilent(): boolean {
    return this.isClosed || this.isResting;
  }

  private openStream(): void {
    if (this.isSilent()) return;
    const stream = this.parts.openStream(`${API}/events?after=${this.last ?? "now"}`);
    this.stream = stream;
    stream.onopen = () => {
      clearTimeout(this.pollTimer);
      this.pollTimer = undefined;
      this.isStreaming = true;
      this.become({ is: "live" });
      this.hears.onLinked();
      void this.lookForOlderStore();
    };
    for (const kind of KINDS) stream.addEventListener(kind, (message) => this.take(message as MessageEvent<string>));
    stream.onerror = () => {
      // A browser's own way to connect again ends for good at any answer but 200, so it is done here.
      stream.close();
      if (this.isSilent() || this.stream !== stream) return;
      this.stream = null;
      this.isStreaming = false;
      if (this.pollTimer === undefined) void this.poll();
      clearTimeout(this.streamTimer);
      this.streamTimer = setTimeout(() => this.openStream(), RETRY_STREAM_EVERY_S * 1000);
    };
  }

  private take(message: MessageEvent<string>): void {
    const event = JSON.parse(message.data) as PlatformEvent;
    this.hear(event);
  }

  private hear(event: PlatformEvent): void {
    if (this.last !== null && event.seq <= this.last) return;
    this.last = event.seq;
    this.hears.onEvent(event);
  }

  private async poll(): Promise<void> {
    const address = `${API}/events?after=${this.last ?? "now"}&limit=${MAX_EVENTS_PER_POLL}`;
    try {
      const told = await this.parts.read(address);
      if (this.isSilent() || this.isStreaming) return;
      const wasAway = this.state.is !== "polling";
      this.become({ is: "polling" });
      for (const event of told.items) this.hear(event);
      this.last = Math.max(this.last ?? 0, told.after);
      if (wasAway) {
        this.hears.onLinked();
        await this.lookForOlderStore();
      }
    } catch (thrown) {
      if (this.isSilent() || this.isStreaming) return;
      const isAway = !(thrown instanceof Problem) || thrown.kind === "away" || thrown.status >= 500;
      if (isAway) this.become({ is: "away", since: this.state.is === "away" ? this.state.since : this.parts.now() });
    }
    if (!this.isSilent() && !this.isStreaming) this.pollTimer = setTimeout(() => void this.poll(), POLL_EVERY_S * 1000);
  }

  /** Restart if the newest event of the server is older than what was heard: its store was restored from a backup. */
  private async lookForOlderStore(): Promise<void> {
    const { last } = this;
    if (last === null) return;
    const told = await this.parts.read(`${API}/events?after=now&limit=1`).catch(() => null);
    if (!told || told.after >= last || this.isSilent()) return;
    this.last = told.after;
    this.hears.onAnew();
    if (!this.stream) return;
    this.stream.close();
    this.isStreaming = false;
    this.openStream();
  }

  private become(state: LinkState): void {
    if (state.is === this.state.is) return;
    this.state = state;
    this.hears.onState(state);
  }
}
