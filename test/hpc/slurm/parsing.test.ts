import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { parseHostList } from '../../../src/hpc/slurm/slurm-output.ts'
import {
  jobFormat,
  neverStarts,
  parseFields,
  parseNodeMemory,
  parseJobLine,
  phaseOf,
} from '../../../src/hpc/slurm/slurm-output.ts'
import {
  mayHaveFeatures,
  nodeFormat,
  parsePartitionNodes,
} from '../../../src/hpc/slurm/slurm-output.ts'
import { expectTimeLimit, parseTimeLimit } from '../../../src/hpc/slurm/slurm-output.ts'
import { needs } from '../../require.ts'
import { sharedSlurm, slurmNeeds } from '../slurm.ts'

const fixture = (name: string): string =>
  readFileSync(new URL(`./fixtures/${name}`, import.meta.url), 'utf8')
const at = (text: string): number => Date.parse(`${text}Z`) / 1000
const waitingFor = (reason: string) =>
  parseJobLine(`7|PENDING|${reason}|2026-11-15T23:29:30|N/A|N/A|10:00|main|`)

const hostLists: Readonly<Record<string, readonly string[]>> = {
  n1: ['n1'],
  'n[01-03,7],gpu4': ['n01', 'n02', 'n03', 'n7', 'gpu4'],
  'r[1-2]n[08-10]': ['r1n08', 'r1n09', 'r1n10', 'r2n08', 'r2n09', 'r2n10'],
  'a-b[009-011],login.example.org': ['a-b009', 'a-b010', 'a-b011', 'login.example.org'],
}

/** As sbatch of Slurm 22.05 reads them: seconds, `null` without a limit. */
const timeLimits: Readonly<Record<string, number | null>> = {
  '5': 300,
  '007': 420,
  '90:00': 5400,
  '0:1': 60,
  '100:61': 6120,
  '00:00:30': 60,
  '1:2:3': 3780,
  '1:61:61': 7380,
  '1-0': 86_400,
  '1-25': 176_400,
  '1-2:3': 93_780,
  '1-2:3:4': 93_840,
  '0': null,
  '-1': null,
  UNLIMITED: null,
  infinite: null,
}
const noTimeLimits = ['2h', '-5', '1.5', '', ' 5', '5:', ':5', '1--1', '1:2:3:4', '+5', '5m', 'INF']

describe('output of Slurm', () => {
  const slurm = sharedSlurm()

  it('a host list has names in order, with their zeros', () => {
    for (const [text, names] of Object.entries(hostLists)) {
      expect(parseHostList(text), text).toEqual(names)
    }
  })

  it('a text that is no host list is refused by name', () => {
    const bad = ['', 'n[1-', 'n]1[', 'n[[1]]', 'n[3-1]', 'n[a-b]', 'n1,', '$(id)', 'n[1-999999999]']
    const twice = 'n[1-60000]m[1-60000]'
    for (const text of [...bad, twice]) {
      expect(() => parseHostList(text), text).toThrow(/list of hosts/)
    }
  })

  needs(...slurmNeeds)('host lists mean to Slurm what they mean here', async () => {
    const { run } = await slurm()
    for (const [text, names] of Object.entries(hostLists)) {
      expect((await run('scontrol', 'show', 'hostnames', text)).trim()).toBe(names.join('\n'))
    }
  })

  it('time limits are read as Slurm reads them, others are refused with the forms', () => {
    for (const [text, seconds] of Object.entries(timeLimits)) {
      expect(expectTimeLimit('--time', text), text).toBe(seconds)
    }
    for (const text of [...noTimeLimits, '71582789', '99999999-0']) {
      expect(() => expectTimeLimit('--time', text), text).toThrow(
        /Expected `--time` to be M, M:S, H:M:S/,
      )
    }
  })

  needs(...slurmNeeds)('time limits mean to Slurm what they mean here', async () => {
    const { run } = await slurm()
    const submit = (text: string): Promise<string> =>
      run('sbatch', '-H', '--parsable', '-o', '/dev/null', '-t', text, '--wrap', 'true')
    for (const [text, seconds] of Object.entries(timeLimits)) {
      const job = (await submit(text)).trim()
      const printed = await run('squeue', '-h', '-j', job, '-o', '%l')
      await run('scancel', job)
      expect(parseTimeLimit(printed.trim()), text).toBe(seconds)
    }
    // The one that Slurm takes for 5,670 years.
    for (const text of noTimeLimits.filter((one) => one !== '-5')) {
      await expect(submit(text), text).rejects.toThrow('Invalid --time specification')
    }
  })

  it('22.05: a line of squeue for each state of a job', () => {
    const jobs = fixture('squeue-22.05.txt').trim().split('\n').map(parseJobLine)
    expect(jobs.map((job) => job && [job.id, phaseOf(job), job.reason, neverStarts(job)])).toEqual([
      ['40', 'ended', 'Priority', false],
      ['34', 'ended', 'NonZeroExitCode', false],
      ['36', 'waiting', 'PartitionNodeLimit', true],
      ['37', 'waiting', 'Resources', false],
      ['39', 'waiting', 'JobHeldUser', false],
      ['35', 'running', 'None', false],
      ['38', 'waiting', 'PartitionTimeLimit', true],
    ])
    expect(jobs[5]).toEqual({
      id: '35',
      state: 'RUNNING',
      reason: 'None',
      submittedAt: at('2026-11-15T23:29:30'),
      startsAt: at('2026-11-15T23:29:31'),
      endsAt: at('2026-11-15T23:39:31'),
      limitSeconds: 600,
      partition: 'main',
      nodes: ['n1', 'n2', 'n3'],
    })
    expect(jobs[3]).toMatchObject({ startsAt: at('2026-11-15T23:39:31'), nodes: [] })
    expect(jobs[4]).toMatchObject({ startsAt: null, endsAt: null, limitSeconds: null })
  })

  // From https://slurm.schedmd.com/job_reason_codes.html (25.11).
  it('25.11: reasons that no time changes are told from those that end', () => {
    const endless = ['AccountNotAllowed', 'AssocMaxNodePerJobLimit', 'BadConstraints']
    const more = ['InvalidQOS', 'QOSMaxGRESPerJob', 'QOSMaxCpuPerNode', 'QOSMinCpuNotSatisfied']
    for (const reason of [...endless, ...more, 'PartitionConfig', 'DependencyNeverSatisfied']) {
      const job = waitingFor(reason)
      expect(job !== null && neverStarts(job), reason).toBe(true)
    }
    const waits = ['AssocGrpCpuLimit', 'AssocMaxJobsLimit', 'BeginTime', 'Dependency', 'Licenses']
    for (const reason of [...waits, 'QOSMaxGRESPerUser', 'Priority', 'JobHeldAdmin']) {
      const job = waitingFor(reason)
      expect(job !== null && neverStarts(job), reason).toBe(false)
    }
  })

  // From squeue(1) in SchedMD/slurm, commits 0d327bd (February 2018) and 02c6668 (October 2020):
  // both describe all fields of `jobFormat` in the same words.
  it('20.11: parts of heterogeneous jobs and of arrays, and a limit that is not set yet', () => {
    const times = '2026-11-15T23:29:30|N/A|N/A'
    const lines = ['65+1', '1080_3'].map((id) => `${id}|PENDING|Priority|${times}|NOT_SET|main|`)
    expect(lines.map(parseJobLine)).toMatchObject([
      { id: '65+1', startsAt: null, endsAt: null, limitSeconds: null, nodes: [] },
      { id: '1080_3', startsAt: null, endsAt: null, limitSeconds: null, nodes: [] },
    ])
  })

  it('a text that is no line of squeue is not parsed as one', () => {
    const lines = ['', 'slurm_load_jobs error: Invalid job id specified', '35|RUNNING|None']
    const wrong = '35|RUNNING|None|x|x|x|10:00|main|n[1-'
    for (const line of [...lines, wrong]) expect(parseJobLine(line), line).toBeNull()
  })

  it('22.05: fields of a job, whatever its name says, and of a node', () => {
    const job = parseFields(fixture('scontrol-job-22.05.txt'))
    const names = [
      'JobId',
      'JobState',
      'Restarts',
      'ExitCode',
      'TimeLimit',
      'NodeList',
      'BatchHost',
    ]
    const values = ['35', 'RUNNING', '0', '0:0', '00:10:00', 'n[1-3]', 'n1']
    expect(names.map((name) => job.get(name))).toEqual(values)
    const node = parseFields(fixture('scontrol-node-22.05.txt'))
    expect([node.get('NodeName'), node.get('NodeAddr')]).toEqual(['n1', '10.206.104.11'])
  })

  // Fields and their order as published outputs of these versions have them; the values are ours.
  it.each(['23.11', '24.11', '25.05'])('%s: the address of a node', (version) => {
    const node = parseFields(fixture(`scontrol-node-${version}.txt`))
    expect([node.get('NodeName'), node.get('NodeAddr')]).toEqual(['n1', '10.1.0.11'])
  })

  it.each([
    ['23.02', 'PENDING', ''],
    ['24.05', 'RUNNING', 'n[1-2]'],
  ])('%s: fields of a job that is %s', (version, state, nodes) => {
    const job = parseFields(fixture(`scontrol-job-${version}.txt`))
    const names = ['JobId', 'JobState', 'Restarts', 'ExitCode', 'NodeList']
    expect(names.map((name) => job.get(name))).toEqual(['35', state, '0', '0:0', nodes])
  })

  it('the memory of a job is told by node, where Slurm counts it', () => {
    const memory = parseNodeMemory(fixture('scontrol-job-24.05.txt'))
    expect([...memory]).toEqual([
      ['n1', 190_272],
      ['n2', 190_272],
    ])
    expect(parseNodeMemory('     Nodes=n3 CPU_IDs=0-1 Mem=0 GRES=').size).toBe(0)
  })

  it('the nodes of partitions have cores, memory, GPUs of all kinds, and features', () => {
    const gres = 'gpu:a100:4(S:0-1),gpu:v100:2,craynetwork:4'
    const lines = [
      'n1|10.1.0.11|64|257000|(null)|(null)|cpu*|n/a|30:00',
      `g1|g1|8|4000|${gres}|a,b|gpu|1:00:00|infinite`,
    ]
    const nodes = parsePartitionNodes(`${lines.join('\n')}\n`)
    const first = { name: 'n1', address: '10.1.0.11', cores: 64, memoryMb: 257_000, gpus: 0 }
    const second = { name: 'g1', address: 'g1', cores: 8, memoryMb: 4000, gpus: 6 }
    expect(nodes).toEqual([
      {
        ...first,
        features: [],
        partition: 'cpu',
        isDefault: true,
        defaultSeconds: 1800,
        maxSeconds: 1800,
      },
      {
        ...second,
        features: ['a', 'b'],
        partition: 'gpu',
        isDefault: false,
        defaultSeconds: 3600,
        maxSeconds: Infinity,
      },
    ])
    const may = (constraint: string | null) => nodes?.map((one) => mayHaveFeatures(one, constraint))
    expect([may(null), may('a'), may('a&b')]).toEqual([
      [true, true],
      [false, true],
      [false, true],
    ])
    // Slurm decides.
    expect([may('a|c'), may('[x*2&y*1]')].flat()).toEqual([true, true, true, true])
    expect(parsePartitionNodes('')).toEqual([])
    const end = '|n/a|infinite'
    const bad = ['sinfo: error', `n1|n1|4+|1|(null)|(null)|cpu${end}`, `n1|n1|4|1|(null)|cpu${end}`]
    for (const line of [...bad, 'n1|n1|4|1|(null)|(null)|cpu|n/a|soon']) {
      expect(parsePartitionNodes(line), line).toBeNull()
    }
  })

  needs(...slurmNeeds)(
    'the nodes of a partition of this version are read as they are',
    async () => {
      const { run } = await slurm()
      const nodes = parsePartitionNodes(await run('sinfo', '-h', '-N', '-o', nodeFormat))
      const inMain = nodes?.filter(({ isDefault }) => isDefault) ?? []
      expect(inMain.map(({ name }) => name)).toEqual(['n1', 'n2', 'n3', 'n4'])
      expect(inMain[0]).toMatchObject({ cores: 4, memoryMb: 4000, gpus: 2, partition: 'main' })
      const limits = nodes?.map((one) => `${one.partition} ${one.defaultSeconds}`)
      expect(new Set(limits)).toEqual(new Set(['main Infinity', 'small 1800']))
    },
  )

  needs(...slurmNeeds)('a job of this version is read as it is', async () => {
    const { run } = await slurm()
    const options = ['--parsable', '-H', '-N2', '-t', '7', '-o', '/dev/null']
    const id = (await run('sbatch', ...options, '--wrap', 'true')).trim()
    const job = parseJobLine(await run('squeue', '-h', '-j', id, '-o', jobFormat))
    const expected = { state: 'PENDING', reason: 'JobHeldUser', limitSeconds: 420 }
    expect(job).toMatchObject({ id, ...expected, partition: 'main', nodes: [] })
    expect(parseFields(await run('scontrol', 'show', 'job', id)).get('JobState')).toBe('PENDING')
    await run('scancel', id)
  })
})
