/**
 * Makes the JavaScript of the package of what the compiler has written: a file for each entry point
 * and for each program that is started by its path, and files for what they share. A process then
 * loads some files instead of hundreds, and of Node's own modules only what it uses.
 *
 *     node scripts/bundle.mjs FOLDER_OF_THE_COMPILER OUTPUT
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'

const root = fileURLToPath(new URL('..', import.meta.url))
const [source, output] = process.argv.slice(2).map((path) => resolve(path))

/** Programs that run no code of users: each has a file that shares nothing. */
const programs = [
  'backends/local/programs/launcher.js',
  'cli/launch/begin-run.js',
  'cli/launch/end-run.js',
  'cluster/agent/agent-program.js',
  'cluster/agent/presence/watcher-program.js',
  'cluster/bundles/bundle-program.js',
  'hpc/agents/node-agent.js',
  'hpc/launch/check-program.js',
  'inference/engines/llama/llama-program.js',
  'runtime/parent-watch.js',
  'runtime/server/guard.js',
]

/** Modules that others import by their path: programs that run functions, and functions. */
const modules = [
  'backends/local/functions/worker-program.js',
  'cli/demo-tasks.js',
  'cli/run/script-preload.js',
  'hpc/services/server-place.js',
  'testing/contract-tasks.js',
]

const { exports: entryPoints, bin } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const pathOf = (published) => relative('dist', published)
const entryFiles = Object.values(entryPoints)
  .flatMap((one) => one?.default ?? [])
  .map(pathOf)
/** Its parts are loaded by the commands that need them, and share nothing with scripts. */
const command = pathOf(bin.tutti)

/**
 * `import` of a module of Node reads all that it exports, and so loads parts that nobody uses: two
 * thirds of the time that an agent takes to load.
 */
const builtins = {
  name: 'builtins',
  transform(code) {
    const pattern = /^import (?:(\w+)|\* as (\w+)|\{([^}]*)\}) from '(node:[\w/]+)';$/gm
    return code.replaceAll(pattern, (_, whole, space, names, module) => {
      const parts = names?.replaceAll(/ as /g, ': ')
      return `const ${whole ?? space ?? `{${parts}}`} = process.getBuiltinModule('${module}');`
    })
  },
}

/** Modules find programs by their own URLs, which are to be those that the compiler gave them. */
const ownUrls = {
  name: 'own-urls',
  transform(code, id) {
    if (!id.startsWith(source) || !code.includes('import.meta.url')) return null
    return `const moduleUrl = urlOf('${relative(source, id)}');\n${code}`
  },
  renderChunk(code, { fileName }) {
    return code.replaceAll(/urlOf\(["']([^"']+)["']\)/g, (_, path) => {
      if (path === fileName) return 'import.meta.url'
      // A bundle in CommonJS has no `import.meta`.
      const way = relative(dirname(fileName), path)
      return `import.meta.url && new URL('${way}', import.meta.url).href`
    })
  },
}

/** What is loaded together, and often: modules that the same of these need share a file. */
const roots = new Map([
  ['backends/local/functions/worker-program.js', 'worker'],
  ['index.js', 'session'],
  ['cluster/index.js', 'cluster'],
  ['hpc/index.js', 'hpc'],
])
/** These say that Node is too old, and need nothing that an old one lacks. */
const nodeChecks = /(?:^|\/)(?:node-version|require-node|exit)\.js$/

/** The file of a module that several entries need; `null` where the bundler decides. */
function sharedFileOf(id, graph) {
  const path = relative(source, id)
  const seen = new Set()
  const visit = (one) => {
    if (seen.has(one)) return
    seen.add(one)
    graph.getModuleInfo(one)?.importers.forEach(visit)
  }
  visit(id)
  const names = Array.from(roots, ([file, name]) => (seen.has(join(source, file)) ? name : ''))
  const name = names.filter((one) => one !== '').join('-')
  return checkFileOf(id) ?? (name || (entryFiles.includes(path) ? toName(path) : null))
}

function checkFileOf(id) {
  const path = relative(source, id)
  return nodeChecks.test(path) ? toName(path) : null
}

/** What a published file loads before anything else. */
function checkFirst({ fileName, isEntry }, check) {
  if (!isEntry || ![...entryFiles, command].includes(fileName)) return ''
  const way = relative(dirname(fileName), check)
  return `import '${way.startsWith('.') ? way : `./${way}`}'`
}

const toName = (path) => path.replace(/\.js$/, '').replaceAll('/', '-')

// package.json lets bundlers leave out modules that nobody uses; some of ours check Node.
writeFileSync(join(source, 'package.json'), '{ "type": "module" }\n')
await bundle([...entryFiles, ...modules], {
  chunkFileNames: 'chunks/[name].js',
  banner: (file) => checkFirst(file, 'chunks/foundation-require-node.js'),
  codeSplitting: {
    includeDependenciesRecursively: false,
    groups: [{ name: sharedFileOf, debugName: 'shared' }],
  },
})
await bundle([command], {
  chunkFileNames: 'cli/chunks/[name].js',
  banner: (file) => checkFirst(file, 'cli/chunks/cli-require-node.js'),
  codeSplitting: {
    includeDependenciesRecursively: false,
    groups: [{ name: checkFileOf, debugName: 'checks' }],
  },
})
for (const program of programs) await bundle([program], { codeSplitting: false })

async function bundle(files, options) {
  const input = Object.fromEntries(
    files.map((file) => [file.replace(/\.js$/, ''), join(source, file)]),
  )
  const made = await rolldown({
    input,
    platform: 'node',
    // What package.json names is installed beside this package.
    external: (id) => !id.startsWith('.') && !id.startsWith('/') && !id.startsWith('\0'),
    plugins: [builtins, ownUrls],
    // Entry points are files that export what their modules do, and those are in shared files.
    preserveEntrySignatures: 'allow-extension',
    transform: { define: { 'import.meta.url': 'moduleUrl' } },
    onLog(level, log) {
      if (level === 'warn') throw new Error(log.message)
    },
  })
  const names = { entryFileNames: '[name].js', minifyInternalExports: false, comments: false }
  await made.write({ dir: output, format: 'esm', ...names, ...options })
}
