import { execFile, execFileSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import * as fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { GpuSampler, parseGpuLine } from '../../../src/backends/sampling/gpu-sampler.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { eventually } from '../../eventually.ts'
import { assertProperty } from '../../property.ts'

let folder: string
let clock: ManualClock
let warnings: string[]

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tutti-gpu-'))
  clock = new ManualClock()
  warnings = []
})

afterEach(() => {
  vi.unstubAllEnvs()
  rmSync(folder, { recursive: true, force: true })
})

/** Puts a program named `nvidia-smi` before all others; `$pids` gets a line for each start. */
function installSmi(script: string): void {
  const path = join(folder, 'nvidia-smi')
  writeFileSync(path, `#!/bin/sh\necho $$ >> ${join(folder, 'pids')}\n${script}\n`)
  chmodSync(path, 0o755)
  vi.stubEnv('PATH', `${folder}${delimiter}${process.env['PATH']}`)
}

function createSampler(): GpuSampler {
  const log = { warn: (code: string, message: string) => warnings.push(`${code}: ${message}`) }
  return new GpuSampler({ clock, log, pollSeconds: 5, procRoot: folder })
}

const starts = (): number[] =>
  readFileSync(join(folder, 'pids'), 'utf8').trim().split('\n').map(Number)

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

describe('GpuSampler with nvidia-smi', () => {
  it('nvidia-smi runs as one program for every GPU, and is ended on close', async () => {
    installSmi('printf "1, 40\\n0, 30\\n10, 5\\n"; exec sleep 1000')
    const sampler = createSampler()
    await sampler.prime()
    await eventually(async () => expect(await sampler.sample()).toHaveLength(3))
    expect(await sampler.sample()).toEqual([
      { gpu_id: 0, gpu_percent: 30 },
      { gpu_id: 1, gpu_percent: 40 },
      { gpu_id: 10, gpu_percent: 5 },
    ])
    const pids = starts()
    expect(pids).toHaveLength(1)
    await sampler.close()
    expect(pids.filter(isAlive)).toEqual([])
    expect(await sampler.sample()).toEqual([])
    expect(warnings).toEqual([])
    expect(clock.pendingTimers).toBe(0)
  })

  it('nvidia-smi is asked for the parsed fields, at most a second old', async () => {
    installSmi(`echo "$@" > ${join(folder, 'arguments')}; echo "0, 1"; exec sleep 1000`)
    const sampler = createSampler()
    await sampler.prime()
    expect(readFileSync(join(folder, 'arguments'), 'utf8')).toBe(
      '--query-gpu=index,utilization.gpu --format=csv,noheader,nounits --loop-ms=1000\n',
    )
    await sampler.close()
  })

  it('row 59: a process without free descriptors says why the program does not start', () => {
    const fixture = join(import.meta.dirname, 'fixtures', 'without-descriptors.ts')
    const command = ['-c', 'ulimit -n 100; exec "$@"', 'bash', process.execPath, fixture]
    const output = execFileSync('bash', command, { encoding: 'utf8' })
    const [, printed = ''] = output.split('\n')
    expect(JSON.parse(printed)).toEqual([
      'GpuUnreadable: GPU utilization is unknown: nvidia-smi: cannot be started (EMFILE)',
    ])
  })

  it('row 59: a missing program means no GPUs, and no warning without a driver', async () => {
    vi.stubEnv('PATH', folder)
    const sampler = createSampler()
    await sampler.prime()
    expect(await sampler.sample()).toEqual([])
    expect(warnings).toEqual([])
  })

  it('row 59: a missing program on a machine with the driver is one warning', async () => {
    vi.stubEnv('PATH', folder)
    mkdirSync(join(folder, 'driver/nvidia'), { recursive: true })
    writeFileSync(join(folder, 'driver/nvidia/version'), 'NVRM version: 570\n')
    const sampler = createSampler()
    await sampler.prime()
    expect(await sampler.sample()).toEqual([])
    expect(warnings).toEqual([
      'GpuUnreadable: GPU utilization is unknown: nvidia-smi: cannot be started (ENOENT)',
    ])
  })

  it.each([
    [
      'exits with 1',
      'echo "could not talk to the driver"; exit 1',
      'ended with code 1, saying "could',
    ],
    ['prints garbage and ends', 'echo "<html>"', 'ended with code 0, saying "<html>"'],
    ['is killed', 'kill -9 $$', 'ended with SIGKILL'],
  ])('row 59: a program that %s means no GPUs and one warning', async (_, script, reason) => {
    installSmi(script)
    const sampler = createSampler()
    await sampler.prime()
    expect(await sampler.sample()).toEqual([])
    expect(await sampler.sample()).toEqual([])
    expect(warnings).toHaveLength(1)
    expect(warnings[0]).toContain(reason)
  })

  it.each([
    ['is silent', 'exec sleep 1000'],
    ['prints garbage for ever', 'while :; do echo garbage; sleep 0.01; done'],
    ['prints a line without end', 'exec cat /dev/zero'],
  ])('row 59: a program that %s is killed after 2 s, with one warning', async (_, script) => {
    installSmi(script)
    const sampler = createSampler()
    const primed = sampler.prime()
    await eventually(() => expect(existsSync(join(folder, 'pids'))).toBe(true))
    await eventually(() => expect(starts()[0]).toBeGreaterThan(0))
    await clock.advance(1999)
    expect(starts().map(isAlive)).toEqual([true])
    await clock.advance(1)
    await primed
    expect(starts().map(isAlive)).toEqual([false])
    expect(await sampler.sample()).toEqual([])
    expect(warnings).toEqual([
      'GpuUnreadable: GPU utilization is unknown: nvidia-smi: no answer within 2 s',
    ])
  })

  it('row 59: 200 % is clamped, a GPU without a value is null, and no warning', async () => {
    installSmi('printf "0, 200 %%\\n1, [N/A]\\nnonsense\\n"; exec sleep 1000')
    const sampler = createSampler()
    await sampler.prime()
    await eventually(async () => expect(await sampler.sample()).toHaveLength(2))
    expect(await sampler.sample()).toEqual([
      { gpu_id: 0, gpu_percent: 100 },
      { gpu_id: 1, gpu_percent: null },
    ])
    await sampler.close()
    expect(warnings).toEqual([])
  })

  it('row 59: a program that falls silent is killed, and tried again in a minute', async () => {
    installSmi('echo "0, 30"; exec sleep 1000')
    const sampler = createSampler()
    await sampler.prime()
    await clock.advance(3000)
    expect(await sampler.sample()).toEqual([{ gpu_id: 0, gpu_percent: 30 }])
    expect(starts().map(isAlive)).toEqual([true])
    await clock.advance(1)
    expect(await sampler.sample()).toEqual([{ gpu_id: 0, gpu_percent: null }])
    expect(starts().map(isAlive)).toEqual([false])
    await clock.advance(50_000)
    expect(await sampler.sample()).toEqual([{ gpu_id: 0, gpu_percent: null }])
    expect(starts()).toHaveLength(1)
    await clock.advance(10_000)
    await eventually(async () =>
      expect(await sampler.sample()).toEqual([{ gpu_id: 0, gpu_percent: 30 }]),
    )
    expect(starts()).toHaveLength(2)
    expect(warnings).toHaveLength(1)
    await sampler.close()
    expect(starts().map(isAlive)).toEqual([false, false])
  })

  it('row 59: output that waited while the event loop was busy is no silence', async () => {
    const [go, done] = [join(folder, 'go'), join(folder, 'done')]
    const wait = (file: string): string => `while [ ! -e ${file} ]; do sleep 0.01; done`
    installSmi(`echo "0, 30"; ${wait(go)}; echo "0, 60"; touch ${done}; exec sleep 1000`)
    const sampler = createSampler()
    await sampler.prime()
    execFileSync('sh', ['-c', `touch ${go}; ${wait(done)}`])
    const advanced = clock.advance(60_000)
    expect(await sampler.sample()).toEqual([{ gpu_id: 0, gpu_percent: 60 }])
    await advanced
    expect(starts().map(isAlive)).toEqual([true])
    await sampler.close()
    expect(warnings).toEqual([])
  })

  it('nvidia-smi does not keep a process alive that forgot to close it', async ({ signal }) => {
    installSmi('while echo "0, 1"; do sleep 0.05; done')
    const source = new URL('../../../src/backends/sampling/gpu-sampler.ts', import.meta.url)
    const foundation = new URL('../../../src/foundation/clock.ts', import.meta.url)
    const program = `
      const { GpuSampler } = await import(${JSON.stringify(source.href)})
      const { systemClock } = await import(${JSON.stringify(foundation.href)})
      const smi = new GpuSampler({ clock: systemClock, log: { warn() {} }, pollSeconds: 1 })
      await smi.prime()
      console.log(await smi.sample())`
    const parameters = ['--input-type=module', '-e', program]
    const { stdout } = await promisify(execFile)(process.execPath, parameters, { signal })
    expect(stdout).toBe('[ { gpu_id: 0, gpu_percent: 1 } ]\n')
  })
})

/** Outputs of the query, of one call or of several in a row: every file is read. */
const fixtures = new URL('./fixtures/', import.meta.url)
const outputs = readdirSync(fixtures).filter((name) => /^nvidia-smi-.*\.csv$/.test(name))

describe('parseGpuLine', () => {
  it.each(outputs)('parseGpuLine reads every line of %s as a GPU of the machine', (name) => {
    const lines = readFileSync(new URL(name, fixtures), 'utf8').trimEnd().split('\n')
    const readings = lines.map(parseGpuLine)
    const ids = [...new Set(readings.map((reading) => reading?.gpu_id))]
    expect(ids).toEqual(ids.map((_, index) => index))
    for (const reading of readings) {
      expect(reading?.gpu_percent ?? 0).toBeGreaterThanOrEqual(0)
      expect(reading?.gpu_percent ?? 0).toBeLessThanOrEqual(100)
    }
  })

  it('parseGpuLine gives the readings of a machine with four GPUs', () => {
    const text = readFileSync(new URL('nvidia-smi-four-gpus.csv', fixtures), 'utf8')
    expect(text.trimEnd().split('\n').map(parseGpuLine)).toEqual([
      { gpu_id: 0, gpu_percent: 37 },
      { gpu_id: 1, gpu_percent: 100 },
      { gpu_id: 2, gpu_percent: 0 },
      { gpu_id: 3, gpu_percent: null },
    ])
  })

  it('row 59: parseGpuLine clamps values out of range, and keeps a GPU without a value', () => {
    expect(parseGpuLine('0, 200 %')).toEqual({ gpu_id: 0, gpu_percent: 100 })
    expect(parseGpuLine('0, -7\r')).toEqual({ gpu_id: 0, gpu_percent: 0 })
    expect(parseGpuLine('7, [Not Supported]')).toEqual({ gpu_id: 7, gpu_percent: null })
    expect(parseGpuLine('7, [GPU requires reset]')).toEqual({ gpu_id: 7, gpu_percent: null })
  })

  it('row 59: any other text is no reading', () => {
    const others = ['', ',', '0', '0,', ', 5', '0, NaN', '0, five', '9999, 5', '-1, 5', '0, 5, 6']
    const failure = 'NVIDIA-SMI has failed because it could not communicate with the driver'
    for (const line of [...others, failure]) expect(parseGpuLine(line)).toBeUndefined()
  })

  it('row 59: parseGpuLine gives a number from 0 to 100, null or nothing for any text', () => {
    const line = fc.oneof(fc.string(), fc.tuple(fc.nat(), fc.double()).map(String))
    assertProperty(
      fc.property(line, (text) => {
        const percent = parseGpuLine(text)?.gpu_percent ?? 0
        expect(percent >= 0 && percent <= 100).toBe(true)
      }),
    )
  })
})
