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
    name: 'an agent gives up results that were not stored',
    file: 'cluster/agent/result-outbox.ts',
    text: 'if (await this.#openStream(number)) this.#runInBackground(this.#append(message))',
    replacement: '',
    seed: 1,
  },
  {
    name: 'an agent does not send missing results again',
    file: 'cluster/agent/result-outbox.ts',
    text: 'for (const message of this.#unrecorded.markLost(from, to))',
    replacement: 'for (const message of this.#unrecorded.markLost(from, from - 1))',
    seed: 3,
  },
  {
    name: 'a drained agent stays',
    file: 'cluster/io/agent/agent.ts',
    text: 'if (isIdle) this.leave()',
    replacement: '',
    seed: 122,
  },
  {
    name: 'an agent keeps the session of a driver that is gone',
    file: 'cluster/io/agent/agent-session.ts',
    text: 'return nowMs - this.driver.lastHeardMs > this.#attach.ownerTtlSeconds * 1000',
    replacement: 'return false',
    seed: 12,
  },
  {
    name: 'a driver requests missing results one too far',
    file: 'cluster/protocol/agent-results.ts',
    text: 'const from = this.#received.through + 1\n',
    replacement: 'const from = this.#received.through + 2\n',
    seed: 3,
  },
  {
    name: 'a driver does not read missing results',
    file: 'cluster/protocol/agent-results.ts',
    text: 'return this.missing !== null',
    replacement: 'return false',
    seed: 1,
  },
  {
    name: 'a link does not notice a gap',
    file: 'cluster/wire/reliable-link.ts',
    text: 'if (message.number !== this.#received + 1) return\n    this.#received++',
    replacement:
      'if (message.number <= this.#received) return\n    this.#received = message.number',
    seed: 5,
  },
  {
    name: 'a link does not resend what was not acknowledged',
    file: 'cluster/wire/reliable-link.ts',
    text: 'if (number < this.#resendNext) continue\n',
    replacement: 'if (number < this.#resendNext || number % 2 === 0) continue\n',
    seed: 3,
  },
  {
    name: 'a driver does not report tasks that have moved',
    file: 'cluster/driver/session-agents.ts',
    text: 'if (moved.length > 0) {',
    replacement: 'if (moved.length > 1000) {',
    seed: 18,
  },
  {
    name: 'a task that has moved keeps the number of its attempt',
    file: 'cluster/protocol/driver-jobs.ts',
    text: 'for (const one of jobs) this.renumber(one, 1)\n',
    replacement: '',
    seed: 228,
  },
  {
    name: 'a task that has begun on a lost node counts as moved',
    file: 'cluster/protocol/driver-jobs.ts',
    text: 'one.isStarted || oftenMoved.has(one)',
    replacement: 'oftenMoved.has(one)',
    seed: 12,
  },
  {
    name: 'a lost task is not reported',
    file: 'cluster/driver/session-agents.ts',
    text: 'if (jobs.has(one)) jobs.end(one, toLostReport(one, name, reason), null)',
    replacement: '',
    seed: 12,
  },
  {
    name: 'an ended task keeps its cores',
    file: 'cluster/protocol/driver-jobs.ts',
    text: 'this.placement.release(agent.name, one)\n',
    replacement: '',
    seed: 1,
  },
  {
    name: 'a returned driver does not read the stream',
    file: 'cluster/driver/driver-session.ts',
    text: 'addMoved(noted.moved)\n      await this.#results.readStream(allResults)\n',
    replacement: 'addMoved(noted.moved)\n',
    seed: 445,
  },
  {
    name: 'a returned driver ignores what agents hold',
    file: 'cluster/driver/session-agents.ts',
    text: 'if (isFirst) earlier.addHeld(agent, answer.held)\n',
    replacement: 'if (isFirst) earlier.addHeld(agent, [])\n',
    seed: 9,
  },
  {
    name: 'a returned driver forgets agents that are missing',
    file: 'cluster/driver/driver-session.ts',
    text: 'await this.#agents.earlier.reportMissingAgents(noted)\n',
    replacement: '',
    seed: 476,
  },
  {
    name: 'a closed session leaves its stream',
    file: 'cluster/driver/driver-session.ts',
    text: 'await this.#stream.remove(this.#options.clock)\n',
    replacement: '',
    seed: 1,
  },
  {
    name: 'an agent takes a second attempt for a known one',
    file: 'cluster/io/agent/agent-session.ts',
    text: 'if (latest >= job.attempt && (older || !this.outbox.hasGivenUp(job.uid))) return',
    replacement: 'if (latest > 0 && (older || !this.outbox.hasGivenUp(job.uid))) return',
    seed: 2,
  },
  {
    name: 'a driver that returns reads the stream only before it attaches to agents',
    file: 'cluster/driver/driver-session.ts',
    text: 'if (!isNew) await this.#results.readStream(allResults)\n',
    replacement: '',
    seed: 2223,
  },
  {
    name: 'an agent stays blocked although its results are stored',
    file: 'cluster/agent/result-outbox.ts',
    text: 'if (!this.#unrecorded.isUnstored(number)) return\n      if (broker.isConnected',
    replacement: 'if (broker.isConnected',
    seed: 904122,
  },
  {
    name: 'an agent waits for the stream of another run',
    file: 'cluster/io/agent/agent.ts',
    text: 'if (earlierSession.run !== attach.run) earlierSession.outbox.close()',
    replacement: '',
    seed: 9824,
  },
  {
    name: 'a returned driver takes a resumed attempt for a retry',
    file: 'cluster/protocol/continued-jobs.ts',
    text: 'isNew = !one.isRetry',
    replacement: 'isNew = one.job.attempt === 1',
    seed: 4709,
  },
  {
    name: 'an agent that is lost before it answers a returned driver counts as known',
    file: 'cluster/driver/session-agents.ts',
    text: '!agent.hasReportedEarlier && this.earlier.has(agent)',
    replacement: 'false',
    seed: 912612,
  },
]
