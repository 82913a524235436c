/** Names for what the server tells, as the pages use them. All of it comes from the OpenAPI. */

import type { components } from "./schema";

type Schemas = components["schemas"];

export type Allocation = Schemas["Allocation"];
export type Attempt = Schemas["Attempt"];
export type Checkpoint = Schemas["Checkpoint"];
export type Entry = Schemas["Entry"];
export type Explanation = Schemas["Explanation"];
export type Job = Schemas["Job"];
export type JobValues = Schemas["JobValues"];
export type JobMetrics = Schemas["JobMetrics"];
export type Plan = Schemas["Plan"];
export type PlatformEvent = Schemas["Event"];
export type Progress = Schemas["Progress"];
export type QueueState = Schemas["QueueState"];
export type Series = Schemas["Series"];
export type Spec = Schemas["Spec"];
export type Stage = Schemas["Stage"];
export type Submission = Schemas["Submission"];
export type Sweep = Schemas["Sweep"];
export type SystemSeries = Schemas["SystemSeries"];
export type Timeline = Schemas["Timeline"];
export type Trial = Schemas["Trial"];
export type Tunable = Schemas["Tunable"];
export type TrainingEvent = Schemas["TrainingEvent"];
export type Role = Schemas["Me"]["role"];
