/**
 * Prepares a clone for the other scripts: dependencies, the newer Node, the build, system packages.
 * Plain JavaScript, because it runs on the system's Node. Steps that are done are skipped.
 */

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { delimiter, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

/** System commands that tests need, their Debian packages, and the tests that need them. */
const services = [
  { command: 'nats-server', package: 'nats-server', tests: 'the tests of the cluster backend' },
  { command: 'ip', package: 'iproute2', tests: 'the cluster tests that cut links between hosts' },
  { command: 'munged', package: 'munge', tests: 'the tests of the HPC backend' },
  { command: 'slurmctld', package: 'slurmctld', tests: 'the tests of the HPC backend' },
  { command: 'slurmd', package: 'slurmd', tests: 'the tests of the HPC backend' },
  { command: 'srun', package: 'slurm-client', tests: 'the tests of the HPC backend' },
  { command: 'mpirun', package: 'openmpi-bin', tests: 'the HPC tests that start MPI programs' },
  { command: 'mpicc', package: 'libopenmpi-dev', tests: 'the HPC tests that compile MPI programs' },
  { command: 'chromium', package: 'chromium', tests: 'the tests that look at reports' },
  { command: 'zsh', package: 'zsh', tests: 'the test of completion in zsh' },
  { command: 'fish', package: 'fish', tests: 'the test of completion in fish' },
  {
    command: 'python3',
    module: 'jinja2',
    package: 'python3-jinja2',
    tests: 'the comparison of chat templates with Jinja',
  },
  { command: 'strace', package: 'strace', tests: 'the checkpoint tests that count system calls' },
]

const root = fileURLToPath(new URL('..', import.meta.url))
const modules = join(root, 'node_modules')
const binaries = join(modules, '.bin')
const installStamp = join(modules, '.tutti-setup')
const buildStamp = join(modules, '.tutti-build')
const mainFile = join(root, 'dist', 'cli', 'main.js')
const moduleCache = join(root, '.cache', 'modules')
/** What the compiler writes, before it is bundled. */
const compiled = join(root, '.cache', 'compiled')
const bundler = join(root, 'scripts', 'bundle.mjs')
const policyFile = '/usr/sbin/policy-rc.d'

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

installDependencies()
checkNode()
build()
if (process.argv.includes('--model')) installModel()
if (process.argv.includes('--services')) installServices()

function installDependencies() {
  const wanted = hashOfDependencies()
  if (existsSync(binaries) && readStamp(installStamp) === wanted) return
  say('installing dependencies (npm ci)')
  const { status, output } = npm('ci', '--no-audit', '--no-fund', '--no-progress')
  if (status !== 0) fail('npm ci failed', output)
  writeFileSync(installStamp, wanted)
  say('dependencies are installed')
}

/** Changes with everything that affects the installation; not with a changed script. */
function hashOfDependencies() {
  const { dependencies, devDependencies, peerDependencies, overrides, allowScripts } = manifest
  return hash([
    readFileSync(join(root, 'package-lock.json')),
    JSON.stringify({ dependencies, devDependencies, peerDependencies, overrides, allowScripts }),
  ])
}

/** The npm package `node` gets its binary by an install script, which npm may not have run. */
function checkNode() {
  const wanted = majorOf(manifest.devDependencies.node)
  if (installedNode() === wanted) return
  say('the newer Node is missing; npm rebuild node')
  const { output } = npm('rebuild', 'node')
  const found = installedNode()
  if (found !== wanted) {
    const have = found === undefined ? 'none' : `Node ${found}`
    fail(`node_modules/.bin/node should be Node ${wanted}, found ${have}`, output)
  }
}

function installedNode() {
  const { status, stdout } = spawnSync(join(binaries, 'node'), ['-v'], { encoding: 'utf8' })
  return status === 0 ? majorOf(stdout) : undefined
}

function build() {
  const wanted = hashOfSources()
  if (existsSync(join(root, 'dist')) && readStamp(buildStamp) === wanted) return
  say('building')
  rmSync(buildStamp, { force: true })
  for (const folder of [join(root, 'dist'), moduleCache, compiled]) {
    rmSync(folder, { recursive: true, force: true })
  }
  const steps = [
    ['tsc', '-p', 'tsconfig.build.json'],
    ['node', bundler, compiled, join(root, 'dist')],
  ]
  for (const [command, ...args] of steps) {
    const { status, output } = execute(join(binaries, command), args)
    if (status !== 0) fail('the build failed', output)
  }
  rmSync(compiled, { recursive: true, force: true })
  if (existsSync(mainFile)) chmodSync(mainFile, 0o755)
  writeFileSync(buildStamp, wanted)
}

/** Creates the small model for the demo and the tests, once. */
function installModel() {
  const args = [mainFile, 'model', 'get', 'stories15M', '--folder', join(root, '.models')]
  const { status, output } = execute(join(binaries, 'node'), args)
  if (status !== 0) fail('the story model could not be created', output)
}

function hashOfSources() {
  const source = join(root, 'src')
  const files = readdirSync(source, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
  const settings = readdirSync(root)
    .filter((name) => /^tsconfig.*\.json$/.test(name))
    .map((name) => join(root, name))
  const all = [bundler, ...settings, ...files].toSorted((a, b) => (a < b ? -1 : 1))
  const parts = all.flatMap((file) => [relative(root, file), readFileSync(file)])
  const { typescript, rolldown } = manifest.devDependencies
  return hash([typescript, rolldown, JSON.stringify(manifest.exports), ...parts])
}

function installServices() {
  const missing = services.filter((service) => !isInstalled(service))
  if (missing.length === 0) return
  if (process.getuid?.() === 0 && isOnPath('apt-get')) {
    install(missing.map((service) => service.package))
  }
  for (const service of missing) {
    if (isInstalled(service)) continue
    say(`${service.package} could not be installed; not run: ${service.tests}`)
  }
}

/** A module of Python counts only if the system's Python finds it: another may come first. */
function isInstalled({ command, module }) {
  if (module === undefined) return isOnPath(command)
  return [`/usr/bin/${command}`, command].some(
    (program) => execute(program, ['-c', `import ${module}`]).status === 0,
  )
}

function install(packages) {
  say(`installing ${packages.join(', ')}`)
  withoutStartingServices(() => {
    const environment = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
    const update = execute('apt-get', ['update', '-q'], environment)
    const options = ['install', '-q', '-y', '--no-install-recommends']
    const result = execute('apt-get', [...options, ...packages], environment)
    if (result.status !== 0) say(lastLines(`${update.output}\n${result.output}`))
  })
}

/** Debian reads this policy file before it starts a new service. An existing file is kept. */
function withoutStartingServices(action) {
  const isOurs = !existsSync(policyFile)
  if (isOurs) writeFileSync(policyFile, '#!/bin/sh\nexit 101\n', { mode: 0o755 })
  try {
    action()
  } finally {
    if (isOurs) rmSync(policyFile, { force: true })
  }
}

/** Runs npm on the system's Node, because `npm ci` removes the newer one while it runs. */
function npm(...args) {
  const environment = { ...process.env, PATH: systemPath() }
  for (const name of Object.keys(environment)) {
    if (/^npm_(?:lifecycle|package|command|config_local)/.test(name)) delete environment[name]
  }
  return execute('npm', args, environment)
}

function systemPath() {
  return pathFolders()
    .filter((folder) => !folder.endsWith(join('node_modules', '.bin')))
    .join(delimiter)
}

function isOnPath(command) {
  return pathFolders().some((folder) => existsSync(join(folder, command)))
}

function pathFolders() {
  return (process.env.PATH ?? '').split(delimiter).filter((folder) => folder !== '')
}

function execute(command, args, env = process.env) {
  const result = spawnSync(command, args, {
    cwd: root,
    env,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    maxBuffer: 256 * 1024 * 1024,
  })
  const failure = result.error === undefined ? '' : `${command}: ${result.error.message}\n`
  return { status: result.status, output: `${failure}${result.stdout ?? ''}${result.stderr ?? ''}` }
}

function hash(parts) {
  const sum = createHash('sha256')
  for (const part of parts) sum.update(part).update('\0')
  return sum.digest('hex')
}

function readStamp(file) {
  return existsSync(file) ? readFileSync(file, 'utf8') : undefined
}

function majorOf(version) {
  return /\d+/.exec(version)?.[0]
}

function say(line) {
  process.stderr.write(`setup: ${withoutHosts(line)}\n`)
}

function fail(reason, output) {
  process.stderr.write(`${withoutHosts(output.trimEnd())}\n`)
  say(reason)
  process.exit(1)
}

/** Where packages come from differs from machine to machine and may be private. */
function withoutHosts(text) {
  return text.replace(/https?:\/\/[^\s/'"]+/g, 'https://<host>')
}

function lastLines(text) {
  return text.trimEnd().split('\n').slice(-5).join('\n')
}
