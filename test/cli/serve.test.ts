import { execFileSync } from 'node:child_process'
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import { get } from 'node:http'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { listConfigKeys } from '../../src/cli/serve-settings.ts'
import { createConfigSchema } from '../../src/inference/config/config-schema.ts'
import { eventually } from '../eventually.ts'
import { serverCommand } from '../inference/engines/process/engine-options.ts'
import { builtMain, type RunningCommand, runCommand, runHere, startProgram } from './run-command.ts'

let folder = ''
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tutti-serve-'))
})
afterAll(() => rmSync(folder, { recursive: true }))

function write(name: string, text: string): string {
  const path = join(folder, name)
  writeFileSync(path, text, { mode: 0o600 })
  return path
}

const echo = (latencyMs = 0): string =>
  `required:\n  model_name: tiny\nengine:\n  kind: echo\n  latency_ms: ${latencyMs}\n`

interface Served {
  readonly command: RunningCommand
  readonly endpoint: string
  readonly key: string | null
}

const serve = (config: string, ...args: readonly string[]): Promise<Served> =>
  serveWith('--config', config, ...args)

async function serveWith(...args: readonly string[]): Promise<Served> {
  const command = startProgram(builtMain, ['serve', '--port', '0', ...args])
  onTestFinished(() => void command.child.kill('SIGKILL'))
  await command.seen('stop      Ctrl-C')
  const banner = command.stdout()
  const endpoint = /^endpoint {2}(\S+)/m.exec(banner)?.[1] ?? ''
  return { command, endpoint, key: /^key {7}(\S+)/m.exec(banner)?.[1] ?? null }
}

function chat(
  endpoint: string,
  headers: Record<string, string> = {},
  content = 'hello',
): Promise<Response> {
  return fetch(`${endpoint}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ messages: [{ role: 'user', content }] }),
  })
}

async function answer(endpoint: string): Promise<{ model: string; tokens: number }> {
  const response = await chat(endpoint, {}, 'one two three four five six')
  const { model, usage } = (await response.json()) as {
    model: string
    usage: { completion_tokens: number }
  }
  return { model, tokens: usage.completion_tokens }
}

describe('keys, encryption and the log of requests', () => {
  it('the log of requests has the names of keys, but no keys and no contents', async () => {
    const keys = write('keys', 'ann key-of-ann rpm=1\n')
    const given = ['--api-keys', keys, '--base-path', '/llm', '--log-requests']
    const { endpoint, command } = await serve(write('keyed.yaml', echo()), ...given)
    expect(endpoint).toMatch(/\/llm$/)
    expect(command.stdout()).toContain("apiKey: '<your key>'")
    const headers = { 'x-api-key': 'key-of-ann', 'x-request-id': 'mine' }
    expect((await chat(endpoint, headers, 'private words')).status).toBe(200)
    expect((await chat(endpoint, headers, 'private words')).status).toBe(429)
    const path = 'POST /v1/chat/completions'
    await command.seen(`429 ${path}`)
    const lines = command.output().split('\n')
    expect(lines.find((line) => line.includes(` 200 ${path}`))).toMatch(
      /^\d{4}-\S+Z 200 POST \S+ \d+\.\d{3}s key=ann tokens=\d+\+\d+ mine$/,
    )
    expect(command.output()).not.toMatch(/private|key-of-ann/)
  })

  it('--log-contents adds prompts and answers; with --json, lines are JSON', async () => {
    const given = ['--config', write('logged.yaml', echo()), '--log-contents', '--json']
    const command = startProgram(builtMain, ['serve', '--port', '0', ...given])
    onTestFinished(() => void command.child.kill('SIGKILL'))
    await command.seen('"endpoint"')
    await chat(JSON.parse(command.stdout()).endpoint, {}, 'seen words')
    await command.seen('"request"')
    const lines = command.output().split('\n')
    expect(JSON.parse(lines.find((one) => one.includes('"request"')) ?? '').request).toMatchObject({
      status: 200,
      request_id: expect.stringMatching(/^req_/),
      completion_tokens: expect.any(Number),
      body: { messages: [{ content: 'seen words' }] },
      answers: [expect.stringContaining('seen words')],
    })
  })

  it('wrong files and options are usage errors', async () => {
    const bad = write('bad-keys', 'canary\n')
    const config = write('plain.yaml', echo())
    const refusals = [
      [['--api-keys', bad], 'line 1: expected a name, a key'],
      [[config], `${config} is a configuration; write --config ${config}`],
      [['--tls-cert', bad], '--tls-cert needs --tls-key'],
      [['--tls-cert', bad, '--tls-key', bad], '--tls-cert, --tls-key'],
      [['--base-path', 'llm'], "argument 'llm' is invalid. expected a path such as /llm"],
      [['--base-path', '/a b'], 'of "/", letters, digits and ".-_~"'],
    ] as const
    for (const [options, problem] of refusals) {
      const args = ['serve', '--config', config, '--port', '0', ...options]
      const { code, stderr } = await runHere(folder, args)
      expect([code, stderr]).toEqual([2, expect.stringContaining(problem)])
      expect(stderr).not.toContain('canary')
    }
  })
})

describe('tutti serve without a file', () => {
  it('serve takes the model as an argument, and each key as an option', async () => {
    const { endpoint } = await serveWith('tiny', '--engine', 'echo', '--llm.max-tokens', '3')
    expect(await answer(endpoint)).toEqual({ model: 'tiny', tokens: 3 })
  })

  it('options of serve take precedence over the file', async () => {
    const config = write('some.yaml', `${echo()}llm:\n  max_tokens: 4\n  max_model_len: 100\n`)
    const options = ['--llm.max-tokens', '2', '--required.served-name', 'mine']
    expect(await answer((await serve(config, ...options)).endpoint)).toEqual({
      model: 'mine',
      tokens: 2,
    })
    const long = ['--llm.max-tokens', '200']
    expect(await runHere(folder, ['serve', '--config', config, ...long])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--llm.max-tokens: expected at most max_model_len (100)'),
    })
  })

  it('serve asks the server behind the engine for its model, with the key of a file', async () => {
    const keyFile = write('upstream-key', 'secret-key\n')
    const upstream = await serve(write('up.yaml', echo()), '--api-key-file', keyFile)
    const address = ['--engine', 'openai', '--base-url', upstream.endpoint]
    const { endpoint, command } = await serveWith(...address, '--engine.api-key-file', keyFile)
    expect(command.stdout()).toContain('serving   tiny')
    expect((await answer(endpoint)).tokens).toBeGreaterThan(0)
    expect(await runHere(folder, ['serve', ...address])).toMatchObject({ code: 3 })
  })

  it('serve looks at the file of the model before everything else', async () => {
    const file = join(folder, 'nofile.gguf')
    const used = createServer().listen(0, '127.0.0.1')
    onTestFinished(() => void used.close())
    await once(used, 'listening')
    const port = String((used.address() as AddressInfo).port)
    const { code, stderr } = await runHere(folder, ['serve', 'nofile.gguf', '--port', port])
    expect([code, stderr]).toEqual([2, expect.stringContaining(`there is no file ${file}`)])
    expect(stderr).toContain('npx tutti model get stories15M')
    const hub = await runHere(folder, ['serve', 'tiny'])
    expect([hub.code, hub.stderr]).toEqual([
      2,
      expect.stringMatching(/--required\.token-file: there is no file tiny; a download from/),
    ])
  })

  it('errors name what was typed, in words', async () => {
    const config = ['--config', write('echo.yaml', echo())]
    const keyFile = write('a.key', 'k')
    const cases: readonly (readonly [readonly string[], RegExp])[] = [
      [[...config, '--base-path', 'llm'], /'--base-path <path>' .* expected a path such as/],
      [['--config', 'none.yaml'], /the configuration none\.yaml does not exist/],
      [[...config, '--api-key-file', 'none'], /--api-key-file: none does not exist/],
      [[...config, '--api-keys', 'none'], /\(--api-keys\): none does not exist/],
      [[...config, '--tls-cert', 'none', '--tls-key', keyFile], /--tls-key\): .*: none does not/],
      [
        ['hf:org/model:Q4'],
        /--required\.token-file: a download from the hub needs .* public models/,
      ],
    ]
    for (const [words, expected] of cases) {
      const { code, stderr } = await runHere(folder, ['serve', ...words])
      expect([code, stderr]).toEqual([2, expect.stringMatching(expected)])
      expect(stderr).not.toMatch(/ENOENT|configFile|basePath/)
    }
  })

  it('an unknown option for a key of the configuration is answered with the nearest', async () => {
    const wrong = ['serve', 'tiny', '--llm.max-token', '3']
    const { code, stderr } = await runHere(folder, wrong)
    expect([code, stderr]).toEqual([
      2,
      "error: unknown option '--llm.max-token'\n(Did you mean --llm.max-tokens?)\n",
    ])
    const json = await runHere(folder, [...wrong, '--json'])
    expect(JSON.parse(json.stderr).error.message).toContain('(Did you mean --llm.max-tokens?)')
    expect((await runHere(folder, ['serve', '--nothing.like-it', '3'])).stderr).not.toContain(
      'mean',
    )
  })

  it('each wrong option of serve is named in one error', async () => {
    const options = ['--llm.max-tokens', 'few', '--server.strict', 'maybe', '--llm.stop', 'END']
    const { code, stderr } = await runHere(folder, [
      'serve',
      'tiny',
      '--engine',
      'echo',
      ...options,
    ])
    expect([code, stderr.trim().split('\n')]).toEqual([
      2,
      [
        'ConfigError  --llm.max-tokens: expected an integer from 1 to 10000000, got "few" (string)',
        '--server.strict: expected true or false, got "maybe" (string)',
      ],
    ])
    expect(await runHere(folder, ['serve'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('nothing names a model'),
    })
  })

  it('every key of the configuration has an option, and secrets only as files', () => {
    // The list `models` is no section, and only a file can have it.
    const { models: _, ...sections } = createConfigSchema({}).shape
    const names = listConfigKeys().map(({ section, name }) => `${section}.${name}`)
    expect(new Set(names.map((name) => name.split('.')[0]))).toEqual(new Set(Object.keys(sections)))
    const llm = names.filter((name) => name.startsWith('llm.')).map((name) => name.slice(4))
    expect(llm).toEqual(Object.keys(sections.llm.def.innerType.shape))
    expect(names).toContain('engine.latency_ms')
    const flags = listConfigKeys().map(({ flag }) => flag)
    expect(flags).toContain('engine.api-key-file')
    expect(flags).not.toContain('engine.api-key')
    expect(flags).not.toContain('required.hf-token')
  })
})

describe('tutti serve', () => {
  it('tutti serve prints address, model and usage, and ends with 0 on SIGTERM', async () => {
    const models = 'models:\n- { model_name: ./x/other.gguf, served_name: other }\n'
    const { command, endpoint, key } = await serve(write('plain.yaml', echo() + models))
    expect(command.stdout()).toContain('serving   tiny with 1 worker\nmodels    tiny, other\n')
    expect(command.stdout()).toContain(`curl ${endpoint}/v1/chat/completions`)
    for (const client of [
      `OpenAI({ baseURL: '${endpoint}/v1'`,
      `Anthropic({ baseURL: '${endpoint}'`,
      `Ollama({ host: '${endpoint}'`,
    ]) {
      expect(command.stdout()).toContain(client)
    }
    expect(key).toBeNull()
    expect((await chat(endpoint)).status).toBe(200)
    command.child.kill('SIGTERM')
    const end = await command.ended
    expect([end.code, end.stderr]).toEqual([
      0,
      'SIGTERM: finishing requests in progress; a second signal stops immediately\nstopped\n',
    ])
  })

  it('tutti serve prints a shell command that fits into 80 columns', async () => {
    const config = write('shown.yaml', echo())
    const { command, endpoint, key } = await serve(config, '--host', '0.0.0.0')
    const [, shown = ''] = /^try +([^]+)^stop /m.exec(command.stdout()) ?? []
    expect(shown.split('\n').filter(({ length }) => length > 80)).toEqual([])
    const told = execFileSync('sh', ['-c', `curl() { printf '%s\\n' "$@"; }\n${shown}`])
    expect(told.toString().trimEnd().split('\n')).toEqual([
      `${endpoint}/v1/chat/completions`,
      '-H',
      `Authorization: Bearer ${key}`,
      '-H',
      'Content-Type: application/json',
      '-d',
      '{"messages":[{"role":"user","content":"Once upon a time"}]}',
    ])
  })

  it("tutti serve shows warnings like its other notices, without Node's prefix", async () => {
    const config = write('readable.yaml', echo().replace('\n', '\n  hf_token: abc\n'))
    chmodSync(config, 0o644)
    const problem = `Others can read the token in ${config}; run: chmod 600 ${config}`
    const told = `TokenFileReadable: ${problem}`
    const check = ['config', 'check', config]
    expect((await startProgram(builtMain, check).ended).stderr).toBe(`${told}\n`)
    const json = await startProgram(builtMain, ['--json', ...check]).ended
    expect(JSON.parse(json.stderr)).toEqual({ notice: told })
    const hidden = await startProgram(builtMain, check, { NODE_NO_WARNINGS: '1' }).ended
    expect([hidden.code, hidden.stderr]).toEqual([0, ''])
  })

  it('tutti serve --json writes its result and its notices as JSON', async () => {
    const config = write('json.yaml', echo())
    const command = startProgram(builtMain, ['--json', 'serve', '--config', config, '--port', '0'])
    onTestFinished(() => void command.child.kill('SIGKILL'))
    await command.seen('"endpoint"')
    expect(JSON.parse(command.stdout())).toMatchObject({
      model: 'tiny',
      models: ['tiny'],
      workers: 1,
    })
    command.child.kill('SIGTERM')
    const end = await command.ended
    const notices = end.stderr.trim().split('\n')
    expect(notices.map((line) => JSON.parse(line) as unknown)).toEqual([
      { notice: 'SIGTERM: finishing requests in progress; a second signal stops immediately' },
      { notice: 'stopped' },
    ])
  })

  it('row 83: SIGTERM with 100 in flight lets them finish and refuses new ones', async () => {
    const { command, endpoint } = await serve(write('slow.yaml', echo(1000)))
    const inFlight = Array.from({ length: 100 }, () => chat(endpoint))
    await untilAccepted(endpoint, inFlight.length)
    command.child.kill('SIGTERM')
    await command.seen('SIGTERM:')
    const late = await chat(endpoint).then(
      ({ status }) => status,
      () => 'refused',
    )
    expect([503, 'refused']).toContain(late)
    const statuses = await Promise.all(inFlight.map(async (one) => (await one).status))
    expect(new Set(statuses)).toEqual(new Set([200]))
    expect((await command.ended).code).toBe(0)
  })

  it('row 26: a second signal ends it at once', async () => {
    const { command, endpoint } = await serve(write('stuck.yaml', echo(600_000)))
    void chat(endpoint).catch(() => {})
    await untilAccepted(endpoint, 1)
    command.child.kill('SIGINT')
    await command.seen('SIGINT:')
    command.child.kill('SIGINT')
    expect((await command.ended).code).toBe(130)
  })

  it('tutti serve requires the key of its file, and shows it nowhere', async () => {
    const keyFile = write('key', 'a-very-secret-key\n')
    const config = write('keyed.yaml', echo())
    const { command, endpoint } = await serve(config, '--api-key-file', keyFile)
    expect((await chat(endpoint)).status).toBe(401)
    const authorized = { authorization: 'Bearer a-very-secret-key' }
    expect((await chat(endpoint, authorized)).status).toBe(200)
    command.child.kill('SIGTERM')
    const end = await command.ended
    expect(end.stdout + end.stderr).not.toContain('a-very-secret-key')
  })

  it('tutti serve requires the key of TUTTI_API_KEY where it has no file', async () => {
    const words = ['serve', '--config', write('own.yaml', echo()), '--host', '0.0.0.0']
    const own = { TUTTI_API_KEY: 'a-key-of-the-environment' }
    const command = startProgram(builtMain, [...words, '--port', '0'], own)
    onTestFinished(() => void command.child.kill('SIGKILL'))
    await command.seen('stop      Ctrl-C')
    const endpoint = /^endpoint {2}(\S+)/m.exec(command.stdout())?.[1] ?? ''
    const local = endpoint.replace('0.0.0.0', '127.0.0.1')
    expect((await chat(local)).status).toBe(401)
    const authorized = { authorization: `Bearer ${own.TUTTI_API_KEY}` }
    expect((await chat(local, authorized)).status).toBe(200)
    expect(command.stdout()).not.toContain(own.TUTTI_API_KEY)
  })

  it('tutti serve makes a key for a host that others can reach', async () => {
    const { endpoint, key } = await serve(write('open.yaml', echo()), '--host', '0.0.0.0')
    const local = endpoint.replace('0.0.0.0', '127.0.0.1')
    expect((await chat(local)).status).toBe(401)
    expect((await chat(local, { authorization: `Bearer ${key}` })).status).toBe(200)
  })

  it('tutti serve answers to the names it is given, and to no others', async () => {
    const names = ['--allow-host', 'ai.example', '--allow-host', '[2001:db8::1]']
    const { endpoint } = await serve(write('named.yaml', echo()), ...names)
    expect(await statusFor(endpoint, 'ai.example')).toBe(200)
    expect(await statusFor(endpoint, '[2001:db8::1]')).toBe(200)
    expect(await statusFor(endpoint, 'evil.example')).toBe(403)
  })

  it.each(['', '*', 'http://ai.example', 'ai.example/v1', 'a b', '2001:db8::1'])(
    'tutti serve refuses to allow "%s", which no Host header ever is',
    async (name) => {
      const end = await runHere(folder, ['serve', '--config', 'x.yaml', '--allow-host', name])
      expect([end.code, end.stderr.includes('ai.example.org')]).toEqual([2, true])
    },
  )

  it('row 72: --allow-origin lets the pages of one more origin call it', async () => {
    const origins = ['--allow-origin', 'https://app.example', '--allow-origin', 'http://b:1']
    const { endpoint } = await serve(write('origins.yaml', echo()), ...origins)
    const allowedFor = async (origin: string): Promise<unknown> => {
      const response = await chat(endpoint, { origin })
      return [response.status, response.headers.get('access-control-allow-origin')]
    }
    for (const origin of ['https://app.example', 'http://b:1', 'http://localhost:3000']) {
      expect(await allowedFor(origin)).toEqual([200, origin])
    }
    expect(await allowedFor('https://app.example.evil.com')).toEqual([403, null])
    const end = await runHere(folder, [
      'serve',
      '--config',
      'x.yaml',
      '--allow-origin',
      'app.example',
    ])
    expect([end.code, end.stderr.includes('https://app.example')]).toEqual([2, true])
  })

  it('tutti serve reads its configuration once: changes count for the next start', async () => {
    const config = join(folder, 'changing.yaml')
    // The server of the engine changes the file before it listens.
    const change = 'echo "no: configuration" > "$0" && exec "$@"'
    const words = JSON.stringify(['sh', '-c', change, config, ...serverCommand()])
    const engine = `engine: { kind: process, command: ${words} }`
    write('changing.yaml', `required: { model_name: tiny }\n${engine}\n`)
    const command = startProgram(builtMain, ['serve', '--config', config, '--port', '0'])
    onTestFinished(() => void command.child.kill('SIGKILL'))
    await Promise.race([command.seen('stop      Ctrl-C'), command.ended])
    expect(readFileSync(config, 'utf8')).toBe('no: configuration\n')
    command.child.kill('SIGTERM')
    const end = await command.ended
    expect([end.code, end.stdout]).toEqual([0, expect.stringContaining('serving   tiny')])
  })

  const mistakes: readonly [string, string, RegExp][] = [
    [
      'a typo',
      'input_batching:\n  max_batch_sise: 5\n',
      /typo.yaml:7:3 max_batch_sise: unknown key, did you mean max_batch_size/,
    ],
    ['a missing file', '', /nowhere\.yaml does not exist\n {2}hint: It was looked for at \//],
  ]
  it.each(mistakes)('row 86: %s exits with 2 and says where', async (what, sections, message) => {
    const path = what === 'a typo' ? write('typo.yaml', echo() + sections) : 'nowhere.yaml'
    const end = await runHere(folder, ['serve', '--config', path])
    expect(end.code).toBe(2)
    expect(end.stderr).toMatch(message)
    expect(end.stderr).not.toContain('    at ')
  })

  it('row 82: a busy port is named, with a way out', async () => {
    const { endpoint } = await serve(write('first.yaml', echo()))
    const { port } = new URL(endpoint)
    const second = write('second.yaml', echo())
    const end = await runCommand('serve', '--config', second, '--port', port)
    expect(end.code).toBe(2)
    expect(end.stderr).toMatch(new RegExp(`port ${port} .*in use`))
    expect(end.stderr).toContain('--port 0')
  })

  it('row 95: tutti serve requires a configuration and a valid port', async () => {
    expect((await runHere(folder, ['serve'])).code).toBe(2)
    const end = await runHere(folder, ['serve', '--config', 'x.yaml', '--port', '70000'])
    expect([end.code, end.stderr.includes('0 to 65535')]).toEqual([2, true])
  })
})

/** `fetch` sets the header itself. */
function statusFor(endpoint: string, host: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const asked = get(`${endpoint}/health`, { headers: { host } }, (response) => {
      response.resume()
      resolve(response.statusCode)
    })
    asked.on('error', reject)
  })
}

/** Resolves when the server has accepted so many requests, whether they wait, run or have ended. */
async function untilAccepted(endpoint: string, count: number): Promise<void> {
  const counted = /^tutti_requests_(?:queued|running|total)\{.*\} (\d+)$/gm
  await eventually(async () => {
    const text = await (await fetch(`${endpoint}/metrics`)).text()
    const accepted = Array.from(text.matchAll(counted), ([, value]) => Number(value))
    expect(accepted.reduce((sum, value) => sum + value, 0)).toBeGreaterThanOrEqual(count)
  })
}
