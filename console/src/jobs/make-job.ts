/** Jobs for tests: one that runs, with what a test says of it. */

import type { Job, Progress, Spec } from "@/api/types";

export function makeProgress(more: Partial<Progress> = {}): Progress {
  return {
    time: 1000,
    num_workers: 2,
    step: 40,
    num_steps: 100,
    epoch: 1,
    loss: 0.5,
    samples_per_s: 100,
    step_s: 2,
    resize_s: null,
    num_micro_batches: null,
    shares_freely: false,
    differed_step: null,
    sent_bytes: null,
    unconnected: null,
    data_wait: null,
    cpus: null,
    memory_bytes: null,
    gpu_busy: null,
    gpu_memory_bytes: null,
    ...more,
  };
}

export function makeJob(more: Partial<Job> = {}): Job {
  return {
    id: "j-1",
    name: "mnist",
    owner: "anna",
    queue: "default",
    priority: 5000,
    min_workers: 1,
    max_workers: 4,
    is_elastic: true,
    max_retries: 0,
    labels: {},
    code: "a".repeat(64),
    project: null,
    experiment: null,
    definition: null,
    parent: null,
    stage: "running",
    reason: "its workers train",
    attempt: 1,
    num_retries: 0,
    exit_code: null,
    stop_now: false,
    version: 1,
    submitted_at: 900,
    staged_at: 910,
    started_at: 910,
    ended_at: null,
    decided_slots: 2,
    decided_reason: "2 of up to 4 slots",
    progress: makeProgress(),
    num_slots: 2,
    gpus_per_worker: 1,
    machine_kind: null,
    ...more,
  };
}

export function makeSpec(more: Partial<Spec> = {}): Spec {
  return {
    program: ["train.py", "--epochs", "20"],
    directory: null,
    environment: {},
    data: null,
    seed: null,
    num_threads: 1,
    cpu_capability: null,
    python: null,
    gpu_type: null,
    node_labels: {},
    num_micro_batches: null,
    checkpoint_every: null,
    keep: 3,
    max_run_s: null,
    heartbeat_limit_s: 5,
    collective_limit_s: 1800,
    memory_bytes: null,
    num_cpus: null,
    must_limit: true,
    parameters: {},
    framework: "legato",
    launcher: null,
    ...more,
  };
}
