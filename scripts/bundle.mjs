/**
 * Bundles the output of the compiler into the JavaScript of the package: a file per entry point and
 * per program that is started by its path, and files for shared modules. A process then loads some
 * files instead of hundreds, and only those of Node's own modules that it uses.
 *
 *     node scripts/bundle.mjs FOLDER_OF_THE_COMPILER OUTPUT
 */

import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { rolldown } from 'rolldown'

const root = fileURLToPath(new URL('..', import.meta.url))
const [source, output] = process.argv.slice(2).map((path) => resolve(path))

/** Programs that run no user code: each is a single file that shares no chunks. */
const programs = [
  'backends/local/programs/launcher.js',
  'cli/launch/begin-run.js',
  'cli/launch/end-run.js',
  'cluster/io/agent/agent-program.js',
  'cluster/io/agent/presence/watcher-program.js',
  'cluster/bundles/bundle-program.js',
  'dashboard/fold/fold-program.js',
  'dashboard/queries/sentences/sentences-program.js',
  'hpc/agents/node-agent.js',
  'hpc/launch/check-program.js',
  'inference/engines/llama/llama-program.js',
  'runtime/parent-watch.js',
  'runtime/server/guard.js',
  'telemetry/record-program.js',
]

/** Modules that others import by path: programs that run functions, and functions. */
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
/** The command: its parts are loaded lazily and share no chunks with the entry points. */
const command = pathOf(bin.tutti)

/**
 * An `import` of a Node module reads all its exports, and so loads parts that are not used, which
 * is two thirds of the load time of an agent. `getBuiltinModule` does not.
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

/** Keeps `import.meta.url` the URL of the compiled file, on which paths of programs depend. */
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

/** Entry points that are often loaded together: modules needed by the same set share a file. */
const roots = new Map([
  ['backends/local/functions/worker-program.js', 'worker'],
  ['index.js', 'session'],
  ['cluster/index.js', 'cluster'],
  ['hpc/index.js', 'hpc'],
])
/** Modules that report an old Node; they must not need anything that an old Node lacks. */
const nodeChecks = /(?:^|\/)(?:version|require-node|exit)\.js$/

/** The file of a module that several entries need; `null` if the bundler decides. */
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

/** Returns the import that a published file executes first. */
function checkFirst({ fileName, isEntry }, check) {
  if (!isEntry || ![...entryFiles, command].includes(fileName)) return ''
  const way = relative(dirname(fileName), check)
  return `import '${way.startsWith('.') ? way : `./${way}`}'`
}

const toName = (path) => path.replace(/\.js$/, '').replaceAll('/', '-')

// Omits `sideEffects`, which would drop the modules that only check the version of Node.
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
await bundleDashboard()
await bundleChatPage()

async function bundle(files, options) {
  const input = Object.fromEntries(
    files.map((file) => [file.replace(/\.js$/, ''), join(source, file)]),
  )
  const made = await rolldown({
    input,
    platform: 'node',
    // Does not bundle dependencies, because they are installed with the package.
    external: (id) => !id.startsWith('.') && !id.startsWith('/') && !id.startsWith('\0'),
    plugins: [builtins, ownUrls],
    // Entry points re-export modules that are in shared files.
    preserveEntrySignatures: 'allow-extension',
    transform: { define: { 'import.meta.url': 'moduleUrl' } },
    onLog(level, log) {
      if (level === 'warn') throw new Error(log.message)
    },
  })
  const names = { entryFileNames: '[name].js', minifyInternalExports: false, comments: false }
  await made.write({ dir: output, format: 'esm', ...names, ...options })
}

/** The script of a page, with the libraries that it uses. */
async function bundleScript(path) {
  const made = await rolldown({
    input: { page: join(root, path) },
    platform: 'browser',
    transform: { target: 'es2023' },
    onLog(level, log) {
      if (level === 'warn') throw new Error(log.message)
    },
  })
  const options = { codeSplitting: false, format: 'esm', minify: true, comments: false }
  return (await made.generate(options)).output[0].code
}

/** The style sheets of a page, after the colours that all pages share. */
async function joinStyles(...paths) {
  const palette = await import(pathToFileURL(join(source, 'views/texts/palette.js')).href)
  return [palette.paletteStyle, ...paths.map(readSource)].join('\n')
}

function readSource(path) {
  return readFileSync(join(root, path), 'utf8')
}

/** The page of the dashboard: one script and one style sheet. */
async function bundleDashboard() {
  const [from, to] = ['src/dashboard/web', join(output, 'dashboard/page')]
  mkdirSync(to, { recursive: true })
  for (const file of ['page.html', 'page.svg']) copyFileSync(join(root, from, file), join(to, file))
  writeFileSync(join(to, 'page.js'), await bundleScript(`${from}/main.tsx`))
  const styles = ['node_modules/uplot/dist/uPlot.min.css', `${from}/page.css`]
  writeFileSync(join(to, 'page.css'), await joinStyles(...styles))
}

/** The chat page of the inference server: one file. */
async function bundleChatPage() {
  const from = 'src/inference/web'
  const script = await bundleScript(`${from}/main.tsx`)
  // An end tag in a text of the script would end the element.
  const escaped = script.replaceAll('</script', '<\\/script')
  const style = await joinStyles(`${from}/page.css`)
  const page = readSource(`${from}/page.html`)
    .replace('></style>', () => `>${style}</style>`)
    .replace('></script>', () => `>${escaped}</script>`)
  writeFileSync(join(output, 'inference/server/chat-page.html'), page)
}
