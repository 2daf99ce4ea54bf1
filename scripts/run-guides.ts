/**
 * Follows README.md and the guides literally: each in its own folder with the packed package, its
 * files written and its commands run in one shell, in order. Takes names of guides (default: all)
 * and `--show`, which prints the output of each command.
 */

import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync } from 'node:fs'
import { readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { findFreePort } from '../src/runtime/server/guarded-server.ts'
import { readerEnvironment, Shell } from './guide-shell.ts'
import { isShown, stepsOf, type GuideCommand, type GuideStep } from './guide-text.ts'

/** Packages of hundreds of megabytes; guides that install them get this project's copies. */
const linkedPackages = new Set(['node-llama-cpp', 'koffi'])
/** The ports that guides use; they are replaced by free ones here. */
const guidePorts = ['8123', '8124']
/** Marks a guide that needs a Slurm cluster. */
const slurmMark = '<!-- needs: slurm -->'
/** The guide that installs the package. README.md and the others start with its folder. */
const firstGuide = 'getting-started.md'
const readme = 'README.md'

const root = fileURLToPath(new URL('..', import.meta.url))
const guides = join(root, 'docs', 'guide')
const workshop = mkdtempSync(join(tmpdir(), 'tutti-guides-'))
const installed = join(workshop, 'installed')
/** Keeps links relative, so that the commands of a copy refer to the copy. */
const copying = { recursive: true, verbatimSymlinks: true }
const showsOutput = process.argv.includes('--show')
const wanted = process.argv.slice(2).filter((name) => name !== '--show')
let passed = 0
let failed = 0
try {
  await followGuides()
} finally {
  rmSync(workshop, { recursive: true, force: true })
}
process.stdout.write(`${passed} passed, ${failed} failed\n`)
process.exitCode = failed === 0 && passed > 0 ? 0 : 1

async function followGuides(): Promise<void> {
  const others = readdirSync(guides).filter((name) => name.endsWith('.md') && name !== firstGuide)
  const all = [readme, ...others]
  const chosen = all.filter(
    (name) => wanted.length === 0 || wanted.includes(name.replace('.md', '')),
  )
  mkdirSync(installed)
  npmIn(root, ['pack', '--silent', '--pack-destination', installed])
  if (!(await follow(firstGuide, installed))) return
  for (const name of ['node_modules', 'package.json', 'package-lock.json', 'tsconfig.json']) {
    cpSync(join(installed, name), join(workshop, 'base', name), copying)
  }
  for (const name of chosen) {
    const folder = join(workshop, name.replace('.md', ''))
    cpSync(join(workshop, 'base'), folder, copying)
    await follow(name, folder)
    rmSync(folder, { recursive: true, force: true })
  }
}

function pathOf(name: string): string {
  return join(name === readme ? root : guides, name)
}

/** Returns whether everything happened as the guide describes. */
async function follow(name: string, folder: string): Promise<boolean> {
  let problem: string | undefined
  try {
    let text = readFileSync(pathOf(name), 'utf8')
    for (const port of guidePorts)
      text = text.replaceAll(port, String(await findFreePort('127.0.0.1')))
    const steps = stepsOf(text)
    if (text.includes(slurmMark)) await withSlurm((env) => takeSteps(steps, folder, env))
    else await takeSteps(steps, folder)
  } catch (error) {
    problem = error instanceof Error ? error.message : String(error)
  }
  if (problem === undefined) passed++
  else failed++
  const result = problem === undefined ? 'ok    ' : 'FAILED'
  process.stdout.write(
    `${result} ${relative(root, pathOf(name))}\n${problem === undefined ? '' : `${problem}\n`}`,
  )
  return problem === undefined
}

/** Starts a Slurm cluster, which ends at the latest with this process. */
async function withSlurm(use: (env: NodeJS.ProcessEnv) => Promise<void>): Promise<void> {
  const script = join(root, 'scripts', 'slurm.mjs')
  const parent = String(process.pid)
  const started = execFileSync(process.execPath, [script, 'up', '--parent', parent], {
    encoding: 'utf8',
  })
  const env = { SLURM_CONF: started.trim().replace(/^SLURM_CONF=/, '') }
  try {
    await use(env)
  } finally {
    execFileSync(process.execPath, [script, 'down'], { env: { ...process.env, ...env } })
  }
}

async function takeSteps(
  steps: readonly GuideStep[],
  folder: string,
  env: NodeJS.ProcessEnv = {},
): Promise<void> {
  const shell = new Shell(folder, env)
  try {
    for (const step of steps) {
      if (step.kind === 'file') {
        mkdirSync(dirname(join(folder, step.path)), { recursive: true })
        writeFileSync(join(folder, step.path), step.text)
      } else if (!linkInstead(step.command, folder)) {
        await checkCommand(shell, step)
      }
    }
  } finally {
    shell.close()
  }
}

async function checkCommand(shell: Shell, step: GuideCommand): Promise<void> {
  const { output, exitCode } = await shell.type(step.command)
  if (showsOutput) process.stdout.write(`$ ${step.command}\n${output}\n`)
  const where = `line ${step.line}: $ ${step.command}`
  if (exitCode !== step.exitCode) {
    throw new Error(`${where}\nexpected exit code ${step.exitCode}, got ${exitCode}\n${output}`)
  }
  if (step.output === undefined || isShown(step.output, output)) return
  throw new Error(`${where}\nexpected\n${step.output}\ngot\n${output}`)
}

/** Links packages instead of installing them; returns whether the command installs only those. */
function linkInstead(command: string, folder: string): boolean {
  const [npm, install, ...names] = command.trim().split(' ')
  if (npm !== 'npm' || install !== 'install') return false
  const packages = names.map((name) => name.replace(/@[\d.]+$/, ''))
  if (names.length === 0 || !packages.every((name) => linkedPackages.has(name))) return false
  for (const name of packages) {
    symlinkSync(join(root, 'node_modules', name), join(folder, 'node_modules', name))
  }
  return true
}

function npmIn(cwd: string, args: readonly string[]): void {
  execFileSync('npm', args, {
    cwd,
    env: readerEnvironment(),
    stdio: ['ignore', 'ignore', 'inherit'],
  })
}
