/** Deliberate mistakes, made in a source when it is loaded. The simulation finds each of them. */

export interface Mistake {
  readonly name: string
  /** Below `src`. */
  readonly file: string
  /** Occurs once in the file. */
  readonly text: string
  readonly replacement: string
  /** A seed that finds the mistake. */
  readonly seed: number
}

export const mistakes: readonly Mistake[] = [
  {
    name: 'a link does not notice a gap',
    file: 'cluster/protocol/link.ts',
    text: 'if (number > this.#received + 1) {',
    replacement: 'if (number > this.#received + 100000) {',
    seed: 18,
  },
  {
    name: 'a link counts duplicates as new',
    file: 'cluster/protocol/link.ts',
    text: 'if (this.#isBroken || number <= this.#received) return false',
    replacement: 'if (this.#isBroken) return false',
    seed: 87,
  },
  {
    name: 'a driver says that it has taken one message too many',
    file: 'cluster/protocol/driver/session-agents.ts',
    text: 'taken: results.arrived }',
    replacement: 'taken: results.arrived + 1 }',
    seed: 5,
  },
  {
    name: 'a driver does not send again what an agent denies',
    file: 'cluster/protocol/driver/session-agents.ts',
    text: 'jobs.requeue(denied)\n',
    replacement: 'void denied\n',
    seed: 6,
  },
  {
    name: 'a driver sends again what an agent holds',
    file: 'cluster/protocol/driver/session-agents.ts',
    text: '(one) => !listed.has(one) && !one.isUnsent',
    replacement: '(one) => !one.isUnsent',
    seed: 3,
  },
  {
    name: 'a driver does not wait for repeated messages',
    file: 'cluster/protocol/driver/session-agents.ts',
    text: "if (agent.state !== 'resending' || (agent.link?.received ?? 0) < agent.resent) return",
    replacement: "if (agent.state !== 'resending') return",
    seed: 5,
  },
  {
    name: 'a returned driver does not wait for missing agents',
    file: 'cluster/protocol/driver/session-agents.ts',
    text: 'return this.#awaited.length > 0\n',
    replacement: 'return false\n',
    seed: 2,
  },
  {
    name: 'a returned driver ignores what agents hold',
    file: 'cluster/protocol/driver/session-agents.ts',
    text: 'results.returned.addHeld(agent, one)\n',
    replacement: 'void one\n',
    seed: 7,
  },
  {
    name: 'a returned driver does not read the stream',
    file: 'cluster/protocol/driver/driver.ts',
    text: 'for (const one of messages) this.#results.addStored(one)',
    replacement: 'void messages',
    seed: 162,
  },
  {
    name: 'a driver does not report tasks that have moved',
    file: 'cluster/protocol/driver/session-agents.ts',
    text: 'if (moved.length > 0) {',
    replacement: 'if (moved.length > 1000) {',
    seed: 40,
  },
  {
    name: 'a task that has begun on a lost node counts as moved',
    file: 'cluster/protocol/driver/driver-jobs.ts',
    text: 'one.isStarted || oftenMoved.has(one)',
    replacement: 'oftenMoved.has(one)',
    seed: 6,
  },
  {
    name: 'a lost task is not reported',
    file: 'cluster/protocol/driver/session-agents.ts',
    text: 'for (const one of begun) jobs.end(one, toLostReport(one, name, reason), null)',
    replacement: 'void toLostReport',
    seed: 6,
  },
  {
    name: 'an ended task keeps its cores',
    file: 'cluster/protocol/driver/driver-jobs.ts',
    text: 'this.placement.release(agent.name, one)',
    replacement: '',
    seed: 1,
  },
  {
    name: 'an agent forgets recorded results that are not stored',
    file: 'cluster/protocol/agent/kept-messages.ts',
    text: "if (kept.state === 'stored') this.#remove(kept)\n    }\n    this.#trim()",
    replacement: 'this.#remove(kept)\n    }\n    this.#trim()',
    seed: 50,
  },
  {
    name: 'an agent does not repeat results on a new link',
    file: 'cluster/protocol/agent/agent.ts',
    text: 'if (results !== null) this.#outbox.resend(results, nowMs)',
    replacement: 'if (results !== null) void nowMs',
    seed: 5,
  },
  {
    name: 'an agent keeps the session of a driver that is gone',
    file: 'cluster/protocol/agent/agent.ts',
    text: "if (silentMs > this.driver.ownerTtlMs) this.#out.push({ kind: 'give-up' })",
    replacement: 'void silentMs',
    seed: 117,
  },
  {
    name: 'an agent that gave up the session goes on with its new part',
    file: 'cluster/protocol/driver/session-agents.ts',
    text: '      return this.join(agent.known, nowMs)\n',
    replacement: '      return\n',
    seed: 114,
  },
  {
    name: 'a driver does not replace a broken link',
    file: 'cluster/protocol/driver/session-agents.ts',
    text: 'if (link.isBroken) this.#reconcile(agent, nowMs)\n    else if (idle',
    replacement: 'if (idle',
    seed: 3,
  },
]
