import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { HostListAllocation } from '../../../src/hpc/host-list-allocation.ts'
import {
  nameTakenCode,
  agentStartedLine,
  toAgentCommand,
} from '../../../src/hpc/agents/agent-lines.ts'
import { NodeAgents } from '../../../src/hpc/agents/node-agents.ts'
import type { Allocation } from '../../../src/hpc/allocation.ts'
import { RemoteProcess } from '../../../src/hpc/remote-process.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { eventually } from '../../eventually.ts'

/** The behavior of a start on the host: like an agent, or not. */
const starts = {
  works: `echo '${agentStartedLine}'; cat > /dev/null`,
  isRefused: `echo 'tutti: agent ended on here'; exit ${nameTakenCode}`,
  isNotTaken:
    'echo "srun: error: Unable to create step for job 1: ' +
    'Memory required by task is not available" >&2; exit 1',
  isOver: 'echo "srun: error: Slurm job 97 has expired" >&2; exit 1',
  fails: 'echo "no room" >&2; exit 3',
}

/** The agent of one host that is this machine; the test says how starts go, and who is there. */
async function oneAgent() {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-starts-'))
  const [shell, start, noted] = ['shell', 'start', 'noted'].map((name) => join(folder, name))
  writeFileSync(shell ?? '', '#!/bin/sh\nshift\nexec sh -c "$*"\n')
  chmodSync(shell ?? '', 0o755)
  const set = (how: keyof typeof starts): void => {
    const seen = 'echo "tutti: folder seen by here yes"'
    writeFileSync(start ?? '', `read -r line; ${seen}\necho start >> '${noted}'\n${starts[how]}\n`)
  }
  set('works')
  const clock = new ManualClock()
  const connectedNodes = new Set(['here'])
  const warnings: string[] = []
  const abandoned: string[] = []
  const ended: string[] = []
  const agents = new NodeAgents({
    allocation: new HostListAllocation({ hosts: ['here'], remoteShell: [shell ?? ''], clock }),
    command: { command: ['sh', start ?? ''], input: '\n' },
    connectedNodes: () => connectedNodes,
    exitReasonOf: () => 'it was silent for 10 s',
    onAgentEnded: (name) => void ended.push(name),
    onNodeAbandoned: (name) => void abandoned.push(name),
    clock,
    log: { warn: (code, text) => void warnings.push(`${code}: ${text}`) },
  })
  onTestFinished(async () => {
    await agents.close()
    rmSync(folder, { recursive: true, force: true })
  })
  /** Repeats the assertions while time passes. */
  const until = (assertions: () => void, ms = 5000): Promise<void> =>
    eventually(async () => {
      await clock.advance(ms)
      assertions()
    })
  agents.noteJoined('here')
  const ready = agents.ready()
  let isReady = false
  void ready.then(() => (isReady = true))
  await until(() => expect(isReady).toBe(true), 20)
  const count = (): number =>
    existsSync(noted ?? '') ? readFileSync(noted ?? '', 'utf8').split('\n').length - 1 : 0
  return { set, connectedNodes, warnings, until, count, agents, abandoned, ended }
}

describe('the agent of a node that is not there', () => {
  it('a missing agent is started repeatedly while another of its name is connected', async () => {
    const { set, connectedNodes, warnings, until, count, ended } = await oneAgent()
    set('isRefused')
    connectedNodes.delete('here')
    await until(() => expect(count()).toBeGreaterThan(5))
    // The one that is connected has not ended.
    expect(ended).toEqual([])
    expect(warnings).toEqual([
      'AgentSilent: the agent of node here does not answer (it was silent for 10 s), and has not ' +
        'ended: the node is used again when the agent continues or exits',
    ])
    set('works')
    await until(() => expect(warnings).toHaveLength(2))
    expect(warnings[1]).toMatch(
      /^AgentRestarted: .*node here is started again \(restart 1 of at most 3\)/,
    )
  })

  it('a missing agent is started repeatedly while a restarted Slurm refuses the step', async () => {
    const { set, connectedNodes, warnings, until, count } = await oneAgent()
    set('isNotTaken')
    connectedNodes.delete('here')
    await until(() => expect(count()).toBeGreaterThan(5))
    const text = /^AgentNotRestarted: .*after slurmctld was started again: .*Memory required by/
    expect(warnings).toEqual([expect.stringMatching(text)])
    set('works')
    await until(() => expect(warnings).toHaveLength(2))
    expect(warnings[1]).toMatch(
      /^AgentRestarted: .*node here is started again \(restart 1 of at most 3\)/,
    )
  })

  it('a missing agent is not restarted, without a message, when its job is over', async () => {
    const { set, connectedNodes, warnings, until, count } = await oneAgent()
    set('isOver')
    connectedNodes.delete('here')
    await until(() => expect(count()).toBe(2))
    // Time enough for all further starts, which would be reported.
    for (let passed = 0; passed < 60; passed++) await until(() => {})
    expect([warnings, count()]).toEqual([[], 2])
  })

  it('a missing agent is given up after three failed starts, each with its reason', async () => {
    const { set, connectedNodes, warnings, until, count, agents, abandoned } = await oneAgent()
    set('fails')
    connectedNodes.delete('here')
    await until(() => expect(warnings).toHaveLength(4))
    const failed = (which: number): unknown =>
      expect.stringMatching(new RegExp(`^AgentNotRestarted: .*\\(${which} of 3\\): no room$`))
    expect(warnings.slice(0, 3)).toEqual([failed(1), failed(2), failed(3)])
    expect(warnings[3]).toMatch(/^AgentGivenUp: node here is not used any more.*: no room$/)
    await until(() => expect(count()).toBe(4))
    expect(warnings).toHaveLength(4)
    // The owners of servers there, and of the allocation, are notified.
    expect(abandoned).toEqual(['here'])
    expect(await agents.abandoned).toMatch(/^node here is not used any more/)
  })
})

/** Nodes whose agents are started by one command, as by a step of Slurm. */
function oneStep(names: readonly string[], program: string) {
  const clock = new ManualClock()
  const allocation = {
    label: 'a job',
    nodes: names.map((name) => ({ name, address: name, memoryMb: null })),
    start(_nodes, { command, input, onOutput }) {
      const each = 'exec 3<&0; for name in $0; do "$@" "$name" <&3 & done; wait'
      const all = ['sh', '-c', each, names.join(' '), ...command]
      const streams = onOutput === undefined ? { input } : { input, onOutput }
      return [new RemoteProcess({ command: all, env: process.env, ...streams, clock })]
    },
  } satisfies Partial<Allocation>
  const ended: string[] = []
  const agents = new NodeAgents({
    allocation: allocation as unknown as Allocation,
    command: { command: toAgentCommand(['sh', '-c', program]), input: '\n' },
    connectedNodes: () => new Set(names),
    exitReasonOf: () => null,
    onAgentEnded: (name, isExpected) => void ended.push(isExpected ? `${name}, as told` : name),
    onNodeAbandoned() {},
    clock,
    log: { warn() {} },
  })
  onTestFinished(() => agents.close())
  for (const name of names) agents.noteJoined(name)
  return { agents, ended }
}

const seen = 'echo "tutti: folder seen by $0 yes"'

describe('agents that one step has started', () => {
  it('an agent of a shared step that cannot start is named, with its output', async () => {
    const { agents } = oneStep(
      ['n1', 'n2', 'n3'],
      `[ "$0" != n2 ] || { echo "no room" >&2; exit 1; }; ${seen}; cat > /dev/null`,
    )
    await expect(agents.ready()).rejects.toThrow('no agent on n2 of a job: no room')
  })

  it('an agent of a shared step that is killed is reported while the others run', async () => {
    const { agents, ended } = oneStep(
      ['n1', 'n2', 'n3'],
      `${seen}; [ "$0" != n2 ] || kill -KILL $$; cat > /dev/null`,
    )
    await eventually(() => expect(ended).toEqual(['n2']))
    await agents.close()
    expect(ended.toSorted()).toEqual(['n1, as told', 'n2', 'n3, as told'])
  })
})
