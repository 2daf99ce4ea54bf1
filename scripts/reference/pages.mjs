/**
 * A plugin for typedoc that makes one page per topic. It leaves out members that another page or
 * line already shows, and puts examples in front of parameters and members.
 */

import {
  Comment,
  Converter,
  DeclarationReflection,
  ReferenceReflection,
  ReflectionKind,
} from 'typedoc'

/** The page of each exported name, by its name or source file. The first match wins. */
const topics = {
  index: {
    'error-classes': /Error(Details)?$/,
    tasks: /^src\/(tasks|foundation\/task-)/,
    session: /^src\/(session|core)\//,
    events: /^src\/events\//,
    telemetry: /^src\/(telemetry|checkpoint|views)\//,
    backends: /^src\/backends\//,
    values: /^src\/foundation\//,
  },
  inference: {
    'inference-config': /^src\/inference\/(config|guardrails|server)\//,
    'inference-engines': /^src\/(inference\/(generation|engines)|runtime)\//,
  },
}

const sentences = {
  'error-classes': 'The errors that tutti throws, with their details.',
  tasks: 'Tasks, their options, states and results.',
  session: 'Sessions submit tasks, wait for them, resume earlier runs and close.',
  events: 'The events of a run, and how to define your own.',
  telemetry: 'Event streams, spans, metrics, progress and summaries.',
  backends: 'The local backends, and the interface for a backend of your own.',
  values: 'Types that the other pages share: clock, log and JSON.',
  inference: 'The backend that serves language models.',
  'inference-config': 'The configuration of a service: engines, guardrails and limits.',
  'inference-engines': 'The engines, and the interface for an engine of your own.',
  workflow: 'Workflows of steps that depend on each other.',
  cluster: 'The backend for several nodes.',
  hpc: 'Nodes from batch systems such as Slurm.',
  dashboard: 'A page about a run, while it runs and afterwards.',
  testing: 'Fakes and contract suites for tests.',
}

export function load(app) {
  // After the plugins that resolve inheritance (0), and before those that make groups (-100).
  app.converter.on(
    Converter.EVENT_RESOLVE_END,
    ({ project }) => {
      removeInherited(project)
      moveExamples(project)
      makePages(project)
    },
    -50,
  )
  app.converter.on(Converter.EVENT_RESOLVE_END, ({ project }) => sortByExample(project), -200)
  app.renderer.on('endPage', removeRepetitions)
}

/** Removes inherited members that another page shows. Those of a private base class stay. */
function removeInherited(project) {
  for (const reflection of Object.values(project.reflections)) {
    if (reflection.inheritedFrom?.reflection !== undefined && reflection.isDeclaration()) {
      project.removeReflection(reflection)
    }
    delete reflection.inheritedFrom
    delete reflection.overwrites
    delete reflection.implementationOf
  }
}

/** An example belongs to the summary: typedoc prints other parts after the parameters. */
function moveExamples(project) {
  for (const { comment } of Object.values(project.reflections)) {
    const examples = comment?.getTags('@example') ?? []
    if (examples.length === 0) continue
    for (const { content } of examples) {
      comment.summary.push({ kind: 'text', text: '\n\n' }, ...content)
    }
    comment.removeTags('@example')
    comment.hasExample = true
  }
}

function makePages(project) {
  for (const entry of project.children.slice()) {
    const source = entry.name === 'index' ? 'tutti' : `tutti/${entry.name}`
    for (const [name, pattern] of Object.entries(topics[entry.name] ?? {})) {
      const page = new DeclarationReflection(name, ReflectionKind.Module, project)
      project.registerReflection(page, undefined, undefined)
      project.addChild(page)
      describePage(page, source)
      for (const child of entry.children?.slice() ?? []) {
        const path = project.getSymbolIdFromReflection(child)?.packagePath ?? ''
        if (pattern.test(child.name) || pattern.test(path)) move(child, page)
      }
    }
    if ((entry.children?.length ?? 0) === 0) project.removeReflection(entry)
    else describePage(entry, source)
  }
}

function describePage(page, source) {
  const sentence = sentences[page.name]
  if (sentence === undefined) throw new Error(`no sentence for the page ${page.name}`)
  const text = `${sentence} Import these names from \`${source}\`.`
  page.comment = new Comment([{ kind: 'text', text }])
}

function move(child, page) {
  child.parent.removeChild(child)
  child.parent = page
  page.addChild(child)
}

/** Names with an example come first: they are what most readers look for. */
function sortByExample(project) {
  for (const page of project.children) {
    for (const group of page.groups ?? []) {
      group.children = [
        ...group.children.filter((child) => hasExample(child)),
        ...group.children.filter((child) => !hasExample(child)),
      ]
    }
  }
}

function hasExample(reflection) {
  if (reflection instanceof ReferenceReflection) return false
  return [reflection, ...(reflection.signatures ?? [])].some(({ comment }) => comment?.hasExample)
}

/** Removes sections that repeat the signature above them: a return type without a comment. */
function removeRepetitions(page) {
  page.contents = page.contents
    .replaceAll(/\n#+ Returns\n\n[^\n]+\n(?=\n(?:#|\*\*\*)|$)/g, '')
    .replaceAll(/\n#+ Get Signature\n/g, '')
}
