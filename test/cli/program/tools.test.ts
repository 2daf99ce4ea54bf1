import { spawnSync } from 'node:child_process'
import { readFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { runDoctor } from '../../../src/cli/doctor.ts'
import { createOutput } from '../../../src/cli/output.ts'
import { KernelTree } from '../../backends/sampling/kernel-tree.ts'
import { needs, requireCommand } from '../../require.ts'
import { recordFolder } from '../reading/record-file.ts'
import { runHere } from '../run-command.ts'

const folder = recordFolder()
afterAll(() => folder.remove())
const run = (...args: readonly string[]) => runHere(folder.path, args)

describe('completion', () => {
  const shellScript = async (shell: string): Promise<string> => {
    const file = join(folder.path, `completion.${shell}`)
    const { stdout, code } = await run('completion', shell)
    expect(code).toBe(0)
    writeFileSync(file, stdout)
    return file
  }
  const wordsOf = (command: string, args: readonly string[]): string[] => {
    const { stdout, stderr } = spawnSync(command, args, { encoding: 'utf8', cwd: folder.path })
    expect(stderr).toBe('')
    return stdout.split(/\s+/).filter((word) => word !== '')
  }

  const lines: readonly [line: string, expected: readonly string[]][] = [
    ['tutti jour', ['journal']],
    ['tutti journal re', ['repair']],
    ['tutti tasks --sta', ['--state']],
    ['tutti --json stat', ['status']],
    ['tutti tasks --state FA', ['FAILED']],
    ['tutti export -o x --format per', ['perfetto']],
    ['tutti completion zs', ['zsh']],
    ['tutti model get tiny', ['tinyllama-1.1b-chat']],
  ]

  needs(requireCommand('bash'))('completion: bash completes commands and options', async () => {
    const file = await shellScript('bash')
    for (const [line, expected] of lines) {
      const words = line.split(' ')
      const call = `source ${file}; COMP_WORDS=(${line}); COMP_CWORD=${words.length - 1}; _tutti`
      expect(wordsOf('bash', ['-c', `${call}; echo "\${COMPREPLY[@]}"`])).toEqual(expected)
    }
  })

  needs(requireCommand('zsh'))('completion: zsh completes commands and options', async () => {
    const file = await shellScript('zsh')
    const stubs = 'compdef() {}; _files() {}; compadd() { shift; print -l -- "$@" }'
    for (const [line, [expected]] of lines) {
      const words = line.split(' ')
      const call = `${stubs}; source ${file}; words=(${line}); CURRENT=${words.length}; _tutti`
      const found = wordsOf('zsh', ['-fc', call])
      expect(found.filter((word) => word.startsWith(words.at(-1) ?? ''))).toEqual([expected])
    }
  })

  needs(requireCommand('fish'))('completion: fish completes commands and options', async () => {
    const file = await shellScript('fish')
    for (const [line, [expected]] of lines) {
      const found = spawnSync('fish', ['-Nc', `source ${file}; complete -C "${line}"`], {
        encoding: 'utf8',
        cwd: folder.path,
        env: { ...process.env, HOME: folder.path },
      })
      const words = found.stdout.split('\n').map((one) => one.split('\t')[0])
      expect(words, line).toContain(expected)
    }
  })

  const sessions = (): string => {
    const place = join(folder.path, 'with records')
    for (const below of ['', 'telemetry']) mkdirSync(join(place, below), { recursive: true })
    const files = [
      's-1.1790000000.telemetry.jsonl',
      's-1.1790000001-2.telemetry.jsonl.zst',
      's-1.1790000000.telemetry.jsonl.view',
      'telemetry/my.run.1790000000.repaired.telemetry.jsonl',
      'notes.txt',
    ]
    for (const file of files) writeFileSync(join(place, file), '')
    return place
  }
  const ofRecords: readonly [words: readonly string[], expected: readonly string[]][] = [
    [
      ['status', ''],
      ['latest', 'my.run', 's-1'],
    ],
    [['status', 's'], ['s-1']],
    [
      ['journal', 'verify', ''],
      ['latest', 'my.run', 's-1'],
    ],
    [
      ['report', 's-1', ''],
      ['latest', 'my.run', 's-1'],
    ],
    [['explain', ''], []],
    [['explain', 'task-1', 'la'], ['latest']],
    [['run', ''], []],
    [[''], []],
  ]
  const isSession = (word: string): boolean => ['latest', 'my.run', 's-1'].includes(word)

  needs(requireCommand('bash'))('completion: bash offers records and files', async () => {
    const file = await shellScript('bash')
    const place = sessions()
    for (const [words, expected] of ofRecords) {
      const list = ['tutti', ...words].map((word) => `'${word}'`).join(' ')
      const call = `cd '${place}'; source ${file}; COMP_WORDS=(${list}); COMP_CWORD=${words.length}`
      const found = wordsOf('bash', ['-c', `${call}; _tutti; printf '%s\n' "\${COMPREPLY[@]}"`])
      expect([words, found.filter(isSession)]).toEqual([words, expected])
      expect([words, found.filter((word) => word.startsWith('-'))]).toEqual([words, []])
      const hasFiles = words.length > 1 && words.at(-1) === ''
      expect([words, found.includes('notes.txt')]).toEqual([words, hasFiles])
      if (words.length === 1) expect(found).toContain('journal')
    }
  })

  needs(requireCommand('zsh'))('completion: zsh offers records', async () => {
    const file = await shellScript('zsh')
    const place = sessions()
    const stubs = 'compdef() {}; _files() {}; compadd() { shift; print -l -- "$@" }'
    for (const [words, expected] of ofRecords) {
      const list = ['tutti', ...words].map((word) => `'${word}'`).join(' ')
      const call = `${stubs}; cd '${place}'; source ${file}; words=(${list})`
      const found = wordsOf('zsh', ['-fc', `${call}; CURRENT=${words.length + 1}; _tutti`])
      const begun = found.filter((word) => isSession(word) && word.startsWith(words.at(-1) ?? ''))
      expect([words, begun]).toEqual([words, expected])
    }
  })

  needs(requireCommand('fish'))('completion: fish offers records', async () => {
    const file = await shellScript('fish')
    const place = sessions()
    for (const [words, expected] of ofRecords) {
      const line = ['tutti', ...words].join(' ')
      const found = spawnSync('fish', ['-Nc', `source ${file}; complete -C "${line}"`], {
        encoding: 'utf8',
        cwd: place,
        env: { ...process.env, HOME: folder.path },
      })
      const offered = found.stdout.split('\n').map((one) => one.split('\t')[0] ?? '')
      expect([words, offered.filter(isSession).toSorted()]).toEqual([words, expected])
    }
  })

  needs(requireCommand('bash'))('completion: no option where a value is wanted', async () => {
    const file = await shellScript('bash')
    const call = `source ${file}; COMP_WORDS=(tutti tail --name ''); COMP_CWORD=3; _tutti`
    const found = wordsOf('bash', ['-c', `${call}; echo "\${COMPREPLY[@]}"`])
    expect(found.filter((word) => word.startsWith('-'))).toEqual([])
  })

  it('row 95: help of an unknown command ends with 2 and names the nearest', async () => {
    const { code, stdout, stderr } = await run('help', 'statsu')
    expect([code, stdout]).toEqual([2, ''])
    expect(stderr).toMatch(/unknown command 'statsu'.*status/s)
    expect((await run('help', 'status')).stdout).toContain('Usage: tutti status')
  })

  it('row 95: an unknown command with --help ends with 2 and names the nearest', async () => {
    const mistakes: readonly [readonly string[], RegExp][] = [
      [['statsu', '--help'], /unknown command 'statsu'.*status/s],
      [['--quiet', 'statsu', '-h'], /unknown command 'statsu'.*status/s],
      [['journal', 'verfy', '--help'], /unknown command 'verfy'.*verify/s],
    ]
    for (const [args, message] of mistakes) {
      const { code, stdout, stderr } = await run(...args)
      expect([args, code, stdout]).toEqual([args, 2, ''])
      expect(stderr).toMatch(message)
    }
    expect((await run('journal', '--help', 'verify')).stdout).toContain('Usage: tutti journal')
  })

  it('row 95: an unknown shell ends with 2 and names those there are', async () => {
    const { code, stderr } = await run('completion', 'csh')
    expect([code, stderr]).toEqual([2, expect.stringContaining('bash, zsh, fish')])
  })
})

describe('what is told about tutti itself', () => {
  it('help, version and completion are one JSON value under --json', async () => {
    const keysOf = async (...args: readonly string[]): Promise<string[]> => {
      const { code, stdout, stderr } = await run(...args)
      expect([args, code, stderr]).toEqual([args, 0, ''])
      return Object.keys(JSON.parse(stdout) as object)
    }
    expect(await keysOf('--json', '--help')).toEqual(['help'])
    expect(await keysOf('status', '--help', '--json')).toEqual(['help'])
    expect(await keysOf('--version', '--json')).toEqual(['version'])
    expect(await keysOf('completion', 'bash', '--json')).toEqual(['script'])
  })
})

describe('doctor and config check', () => {
  it('doctor: says of each part whether it is there, and the command that gets it', async () => {
    const { stdout, code } = await run('doctor', '--json')
    expect(code).toBe(0)
    const { checks, cores } = JSON.parse(stdout) as {
      checks: { name: string; state: string; get: string | null; needed_for: string }[]
      cores: number
    }
    expect(cores).toBeGreaterThan(0)
    expect(checks.find(({ name }) => name === 'Node')).toMatchObject({ state: 'ok', get: null })
    expect(checks.find(({ name }) => name === 'koffi')).toMatchObject({
      state: 'ok',
      detail: expect.stringMatching(/^installed, \d+\.\d+\.\d+$/),
    })
    const { peerDependencies } = JSON.parse(readFileSync('package.json', 'utf8')) as {
      peerDependencies: Record<string, string>
    }
    expect(checks.find(({ name }) => name === 'node-llama-cpp')).toMatchObject({
      detail: `installed, ${peerDependencies['node-llama-cpp']}`,
    })
    for (const { name, state, get, needed_for } of checks) {
      expect(needed_for).not.toBe('')
      if (state === 'missing') expect([name, get]).toEqual([name, expect.stringMatching(/install/)])
    }
    expect((await run('doctor')).stdout).toMatch(/^ok +Node +\d/)
  })

  it('doctor: a folder where nothing can be written is a problem, and not optional', () => {
    let text = ''
    const stream = { isTTY: false, write: (more: string) => (text += more) }
    runDoctor(createOutput('text', stream, stream), '/nowhere/at-all')
    const line = /^problem {2}this folder +\/nowhere\/at-all cannot be written; needed for records/m
    expect(text).toMatch(line)
    expect(text).toMatch(/^1 problem to solve$/m)
  })

  it('doctor: prints the cores and the memory that the control group allows', () => {
    using tree = new KernelTree()
    tree.write({
      'proc/self/cgroup': '0::/job\n',
      'cgroup/cgroup.procs': '',
      'cgroup/job/cgroup.procs': '',
      'cgroup/job/cpu.max': '100000 100000\n',
      'cgroup/job/memory.max': '268435456\n',
    })
    let text = ''
    const stream = { isTTY: false, write: (more: string) => (text += more) }
    runDoctor(createOutput('text', stream, stream), folder.path, tree)
    expect(text).toMatch(/^1 core, 256 MB of memory$/m)
  })

  it('doctor: looks for nats-server where backends do', () => {
    const examined = (): string => {
      let text = ''
      const stream = { isTTY: false, write: (more: string) => (text += more) }
      runDoctor(createOutput('text', stream, stream), folder.path)
      return text
    }
    onTestFinished(() => void vi.unstubAllEnvs())
    vi.stubEnv('TUTTI_NATS_SERVER', process.execPath)
    expect(examined()).toContain(`nats-server              ${process.execPath}\n`)
    vi.stubEnv('TUTTI_NATS_SERVER', '/nowhere/nats-server')
    expect(examined()).toMatch(/^problem {2}nats-server .*at \/nowhere.*change TUTTI_NATS_SERVER$/m)
  })

  it('config check: a right file, and one with a misspelled key by line and column', async () => {
    const right = 'required:\n  model_name: tiny\nengine:\n  kind: echo\n'
    writeFileSync(join(folder.path, 'right.yaml'), right)
    const good = await run('config', 'check', 'right.yaml', '--json')
    expect(JSON.parse(good.stdout)).toMatchObject({ path: 'right.yaml', engine: 'echo' })
    writeFileSync(join(folder.path, 'off.yaml'), `${right}guardrails:\n  rules: [secrets]\n`)
    const off = await run('config', 'check', 'off.yaml')
    expect([off.code, off.stdout]).toEqual([0, expect.stringContaining('guardrails off')])
    writeFileSync(join(folder.path, 'wrong.yaml'), `${right}input_batching:\n  max_batch_sise: 4\n`)
    const bad = await run('config', 'check', 'wrong.yaml')
    expect([bad.code, bad.stdout]).toEqual([2, ''])
    expect(bad.stderr).toMatch(/wrong\.yaml:6:3.*max_batch_sise.*max_batch_size/s)
  })
  it('config check: a model file of the llama engine that does not exist', async () => {
    const text = 'required:\n  model_name: ./none/tiny.gguf\nengine:\n  kind: llama\n'
    writeFileSync(join(folder.path, 'llama.yaml'), text)
    const bad = await run('config', 'check', 'llama.yaml')
    expect([bad.code, bad.stdout]).toEqual([2, ''])
    const path = join(folder.path, 'none/tiny.gguf')
    expect(bad.stderr).toContain(`llama.yaml:2:15 required.model_name: there is no file ${path}`)
    mkdirSync(path, { recursive: true })
    const isFolder = await run('config', 'check', 'llama.yaml')
    expect(isFolder.stderr).toContain(`2:15 required.model_name: ${path} cannot be read: EISDIR`)
    rmSync(path, { recursive: true })
    writeFileSync(path, 'a text')
    const isText = await run('config', 'check', 'llama.yaml')
    expect(isText.stderr).toContain(`2:15 required.model_name: ${path} is not a GGUF file`)
    writeFileSync(path, 'GGUF')
    expect((await run('config', 'check', 'llama.yaml')).code).toBe(0)
    const named = text.replace('./none/tiny.gguf', 'hf:user/tiny:Q4_K_M')
    writeFileSync(
      join(folder.path, 'hub.yaml'),
      named.replace('\nengine', '\n  hf_token: t\nengine'),
    )
    expect((await run('config', 'check', 'hub.yaml')).code).toBe(0)
  })

  it('config check: several nodes for an engine that has no servers on nodes', async () => {
    const text = 'required: { model_name: a }\nhardware: { num_nodes: 2 }\nengine: '
    const check = async (engine: string) => {
      writeFileSync(join(folder.path, 'nodes.yaml'), `${text}${engine}\n`)
      return await run('config', 'check', 'nodes.yaml')
    }
    const bad = await check('{ kind: openai, base_url: "http://127.0.0.1:1/v1" }')
    expect([bad.code, bad.stdout]).toEqual([2, ''])
    expect(bad.stderr).toContain(
      'nodes.yaml:2:24 hardware.num_nodes: expected 1: the openai engine runs workers on this node',
    )
    expect((await check('{ kind: process, command: "serve {port}" }')).code).toBe(0)
  })
})
