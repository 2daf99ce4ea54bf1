/**
 * The requests of the page and the answers of the server, as types that both share.
 *
 * The page sends the queries of everything on screen in one `POST views`. The server answers as
 * soon as one answer differs from the version that the page has, but at most 4 times per second, or
 * after `waitSeconds` without a change. All times are wall-clock seconds.
 */

/** The body of `POST views`. */
export interface ViewsRequest {
  /** The file name of the record, on a page that lists the records of a folder. */
  readonly record?: string
  readonly queries: readonly VersionedQuery[]
  /** How long to wait for a change. 0 answers immediately. At most 25. */
  readonly waitSeconds: number
}

export interface VersionedQuery {
  /** Chosen by the page, for example the name of the panel. */
  readonly id: string
  readonly query: ViewQuery
  /** The version of the answer that the page has; absent if it has none. */
  readonly version?: string
}

/** The answer to `POST views`. */
export interface ViewsResponse {
  /** Differs after a restart of the server. The page then requests everything again. */
  readonly server: string
  /** The actions that this viewer may request. */
  readonly rights: ViewerRights
  /** Answers that make the response too large follow in the next response. */
  readonly answers: readonly QueryAnswer[]
}

/** The actions that the page offers. */
export interface ViewerRights {
  readonly cancel: boolean
  readonly retry: boolean
  /** Whether `GET report` has a report. */
  readonly report: boolean
}

/** The answer to `POST link`. The new link is the address of the page with `?t=` and the token. */
export interface NewLink {
  readonly token: string
}

/** The answer to `POST control/cancel` and `POST control/retry`. Their body is `{ uid }`. */
export interface ControlResult {
  /** The value that the method of `DashboardControl` returned: `false` if nothing was done. */
  readonly result: boolean | string | null
}

/** The answer to one query. Queries without a changed answer are left out. */
export interface QueryAnswer {
  readonly id: string
  readonly version: string
  /** `null` if the query failed, with a sentence in `error`. */
  readonly view: unknown
  readonly error?: string
}

/** A part of the run. A missing field does not limit it. */
export interface TimeRange {
  readonly from?: number
  readonly to?: number
}

/** Limits all panels to a selected range, a name, and the replayed time. */
export interface Filter extends TimeRange {
  readonly name?: string
  /** The replayed time: everything after it is left out. */
  readonly at?: number
}

/** The view that answers each kind of query. */
export interface Views {
  readonly head: HeadView
  readonly stream: StreamView
  readonly inside: InsideView
  readonly progress: ProgressView
  readonly tasks: TasksPanelView
  readonly resources: ResourcesPanelView
  readonly failures: FailuresPanelView
  readonly workers: WorkersView
  readonly inference: InferencePanelView
  readonly graph: GraphPanelView
  readonly events: EventsView
  readonly health: HealthPanelView
  readonly task: TaskDrawerView
  readonly records: RecordsView
}

export type ViewQuery =
  | { readonly kind: 'head'; readonly filter: Filter }
  | {
      readonly kind: 'stream'
      readonly filter: Filter
      readonly range: TimeRange
      readonly cells: number
    }
  | { readonly kind: 'inside'; readonly filter: Filter }
  | { readonly kind: 'progress'; readonly filter: Filter }
  | ({ readonly kind: 'tasks'; readonly filter: Filter } & TasksPart)
  | { readonly kind: 'resources'; readonly filter: Filter; readonly range: TimeRange }
  | { readonly kind: 'failures'; readonly filter: Filter }
  | { readonly kind: 'workers'; readonly filter: Filter }
  | { readonly kind: 'inference'; readonly filter: Filter }
  | { readonly kind: 'graph'; readonly filter: Filter }
  | { readonly kind: 'events'; readonly filter: Filter; readonly q: string; readonly limit: number }
  | { readonly kind: 'health' }
  | { readonly kind: 'task'; readonly uid: string; readonly filter: Filter }
  | { readonly kind: 'records' }

/** The rows of the tasks panel. `q` is the query bar (`state:running name:/^sim/ dur>2s`). */
export interface TasksPart {
  readonly q: string
  readonly sort: 'order' | 'uid' | 'name' | 'state' | 'waited' | 'ran' | 'worker'
  readonly isDescending: boolean
  readonly offset: number
  readonly limit: number
}

export interface HeadView {
  readonly sessionId: string
  readonly record: string | null
  /** `no record` as long as a record does not exist, or cannot be read. */
  readonly state: 'running' | 'ended' | 'interrupted' | 'no record'
  /** The part of the record that the numbers cover while the rest is being read; else `null`. */
  readonly reading: { readonly bytes: number; readonly total: number } | null
  /**
   * When the view begins, and why that is later than the run, as for a live view without a record;
   * else `null`.
   */
  readonly beginsAt: { readonly time: number; readonly reason: string } | null
  /** The beginning of the whole run, even in a replay; `null` if it is not known. */
  readonly startTime: number | null
  /** The end of the whole run, even in a replay; the current time of a running session. */
  readonly endTime: number
  readonly durationSeconds: number
  readonly etaSeconds: number | null
  readonly counts: {
    readonly done: number
    readonly failed: number
    readonly canceled: number
    readonly running: number
    readonly queued: number
    readonly waiting: number
    readonly interrupted: number
    readonly total: number
  }
  /** Set if a server of models is shown, which has requests instead of tasks; else `null`. */
  readonly serving: ServingView | null
  /** Ended tasks per second, one value per bucket of equal length, oldest first. */
  readonly rate: { readonly bucketSeconds: number; readonly values: readonly number[] }
  /** The sentences of "What bounded this run", from the same code as the report. */
  readonly verdict: string
  readonly sentences: readonly string[]
  /** Everything that is dropped or missing: lines, events, segments. Never hidden. */
  readonly missing: readonly string[]
  /** The times in which nothing ran. The time axis shows each as a narrow strip. */
  readonly folds: readonly { readonly from: number; readonly to: number; readonly reason: string }[]
  /** The colour of each name as an index into the palette, shared by all panels and the report. */
  readonly colours: Readonly<Record<string, number>>
}

/** The requests to a server of models since the dashboard was started. */
export interface ServingView {
  readonly model: string
  readonly workers: number
  readonly running: number
  readonly waiting: number
  readonly done: number
  readonly failed: number
  readonly batches: number
}

/** A block of the stream. Its phases are drawn from left to right; times are absolute. */
export interface StreamBlock {
  readonly row: number
  readonly task: string
  readonly name: string
  readonly attempt: number
  readonly start: number
  readonly end: number
  readonly outcome:
    | 'running'
    | 'completed'
    | 'failed'
    | 'canceled'
    | 'retried'
    | 'lost'
    | 'interrupted'
    | 'other'
  /** The phases in order. Phases in which the task does not run are drawn paler. */
  readonly phases: readonly {
    readonly kind: 'values' | 'queued' | 'starting' | 'running' | 'between'
    readonly from: number
    readonly to: number
  }[]
}

/** Many attempts drawn as one cell. */
export interface StreamCell {
  readonly row: number
  readonly start: number
  readonly end: number
  readonly busySeconds: number
  readonly attempts: number
  readonly failed: number
}

export interface StreamView {
  readonly rows: readonly {
    readonly label: string
    readonly nodeId: string
    readonly backend: string
  }[]
  /** How many rows and blocks are not shown, in words; empty if everything is shown. */
  readonly notShown: string
  readonly range: { readonly from: number; readonly to: number }
  readonly blocks: readonly StreamBlock[]
  readonly cells: readonly StreamCell[]
}

/** The attempts in the range of the filter, by name. */
export interface InsideView {
  readonly names: readonly InsideName[]
}

export interface InsideName {
  readonly name: string
  readonly count: number
  readonly failures: number
  readonly seconds: number
  readonly p50: number
  readonly p95: number
  readonly max: number
}

export interface ProgressView {
  readonly names: readonly {
    readonly name: string
    readonly total: number
    readonly done: number
    readonly failed: number
    readonly canceled: number
    readonly running: number
    readonly waiting: number
    readonly text: string
    readonly etaSeconds: number | null
    readonly p50: number | null
    readonly p95: number | null
    readonly max: number | null
    readonly totalSeconds: number
  }[]
  readonly notShown: string
}

export interface TaskRowView {
  readonly uid: string
  readonly name: string
  readonly scope: string
  readonly state: string
  readonly waited: number | null
  readonly ran: number | null
  readonly worker: string
  readonly nodeId: string
  readonly progress: { readonly fraction: number; readonly text: string } | null
  readonly error: string
}

export interface TasksPanelView {
  readonly rows: readonly TaskRowView[]
  readonly matching: number
  readonly total: number
  /** Why the query cannot be used, with the part that is wrong; empty if it can. */
  readonly problem: string
}

export interface ResourcesPanelView {
  readonly nodes: readonly {
    readonly nodeId: string
    readonly backend: string
    readonly hasLeft: boolean
    readonly times: readonly number[]
    readonly cpu: readonly (number | null)[]
    readonly memory: readonly (number | null)[]
    readonly gpus: readonly { readonly id: number; readonly percent: readonly (number | null)[] }[]
  }[]
  readonly notShown: string
}

export interface FailuresPanelView {
  readonly groups: readonly {
    readonly number: number
    readonly errorType: string
    readonly message: string
    readonly name: string
    readonly count: number
    readonly firstTask: string
    readonly firstTime: number
    readonly lastTime: number
    readonly isConsequence: boolean
    /** The lines of `tutti failures` for the example, without the title: error, stack, output. */
    readonly example: readonly string[]
    /** Up to 200 uids, for "list", "copy" and "retry selected". */
    readonly tasks: readonly string[]
  }[]
  readonly notShown: string
}

export interface WorkersView {
  readonly nodes: readonly {
    readonly nodeId: string
    readonly backend: string
    /** `stayed`: the node was still there when the run ended. */
    readonly state: 'here' | 'draining' | 'left' | 'lost' | 'stayed'
    readonly joined: number | null
    readonly left: number | null
    readonly reason: string
    readonly cores: number | null
    readonly gpus: number | null
    readonly memoryMb: number | null
    readonly busySlots: number
    readonly cpu: number | null
    readonly memory: number | null
    readonly isFull: boolean
  }[]
  readonly workers: readonly {
    readonly id: string
    readonly nodeId: string
    readonly state: 'busy' | 'idle' | 'gone' | 'lost'
    /** When and why a lost worker was lost; else `null` and empty. */
    readonly lost: number | null
    readonly reason: string
    readonly task: string | null
    readonly taskName: string
    readonly taskSeconds: number | null
    readonly idleSeconds: number | null
    /** Since its first attempt, until it was lost or ended its last attempt, if it is not there. */
    readonly ageSeconds: number
    readonly attempts: number
    readonly failed: number
    readonly busyPercent: number
  }[]
  /** HPC allocations: job id, partition, nodes, time limit, time left, queue wait, in words. */
  readonly allocations: readonly { readonly title: string; readonly facts: readonly string[] }[]
  /** Losses, drains and other warnings about nodes and workers, latest first. */
  readonly warnings: HealthPanelView['warnings']
  readonly notShown: string
}

export interface InferencePanelView {
  readonly models: readonly {
    readonly model: string
    readonly running: number
    readonly waiting: number
    readonly done: number
    readonly failed: number
    readonly ttft: { readonly p50: number; readonly p95: number } | null
    readonly betweenTokens: { readonly p50: number; readonly p95: number } | null
    readonly promptTokensPerSecond: number | null
    readonly answerTokensPerSecond: number | null
    readonly cacheUse: number | null
    readonly prefixHits: number | null
  }[]
  readonly batches: {
    readonly count: number
    readonly requests: number
    readonly waitSeconds: number
    readonly computeSeconds: number
  }
  readonly sizes: readonly { readonly upTo: number; readonly batches: number }[]
  readonly series: readonly {
    readonly time: number
    readonly requests: number
    readonly waitSeconds: number
    readonly computeSeconds: number
  }[]
  readonly server: readonly { readonly title: string; readonly value: string }[]
}

export interface GraphPanelView {
  /** Whether each node is a name instead of a task, because the filter selects over 200 tasks. */
  readonly isCollapsed: boolean
  readonly nodes: readonly {
    readonly id: string
    readonly label: string
    /** `null` for a node that stands for all tasks of a name. */
    readonly state: string | null
    readonly tasks: number
    readonly done: number
    readonly failed: number
    readonly running: number
    readonly isCritical: boolean
    readonly depth: number
  }[]
  readonly edges: readonly {
    readonly from: string
    readonly to: string
    readonly count: number
    readonly isCritical: boolean
  }[]
  readonly criticalSeconds: number | null
  readonly notShown: string
}

export interface EventsView {
  /** The latest matching events, newest first. */
  readonly events: readonly {
    readonly time: number
    readonly type: string
    readonly task: string | null
    readonly name: string
    readonly node: string | null
    readonly text: string
  }[]
  /** Numeric fields of custom events over time. */
  readonly plots: readonly {
    readonly title: string
    readonly times: readonly number[]
    readonly values: readonly number[]
  }[]
  readonly notShown: string
  /** Why the query cannot be used, with the part that is wrong; empty if it can. */
  readonly problem: string
}

export interface HealthPanelView {
  readonly facts: readonly {
    readonly title: string
    readonly value: string
    readonly isBad: boolean
  }[]
  readonly warnings: readonly {
    readonly time: number
    readonly type: string
    readonly subject: string
    readonly text: string
  }[]
  readonly loopLag: { readonly times: readonly number[]; readonly ms: readonly number[] }
}

/** The drawer, a side panel: what `tutti explain` and `tutti logs` print about a task. */
export interface TaskDrawerView {
  readonly uid: string
  readonly name: string
  readonly scope: string
  readonly state: string
  readonly isInterrupted: boolean
  /**
   * Whether more data about the task is being read from the record. The data follows as a change.
   */
  readonly isReading: boolean
  /** The lines of `tutti explain`. */
  readonly story: readonly string[]
  readonly error: readonly string[]
  readonly stdout: { readonly text: string; readonly isCut: boolean } | null
  readonly stderr: { readonly text: string; readonly isCut: boolean } | null
  readonly attributes: readonly (readonly [key: string, value: string])[]
  readonly dependencies: readonly TaskLink[]
  readonly dependents: readonly TaskLink[]
  readonly waitsFor: readonly string[]
  readonly range: { readonly from: number; readonly to: number } | null
  readonly commands: readonly { readonly title: string; readonly text: string }[]
}

export interface TaskLink {
  readonly uid: string
  readonly name: string
  readonly state: string
}

export interface RecordsView {
  readonly records: readonly {
    readonly file: string
    readonly sessionId: string
    readonly state: string
    readonly startTime: number | null
    readonly durationSeconds: number | null
    readonly bytes: number
    /** The number of completed tasks. The counts are `null` while they are not known. */
    readonly done: number | null
    readonly failed: number | null
    readonly canceled: number | null
  }[]
  readonly notShown: string
}
