import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { UnpackedBundles } from '../../../src/cluster/bundles/unpacked-bundles.ts'

it('an unpacked bundle gives the path of a module in its project, also after its removal', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-bundles-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const bundles = new UnpackedBundles(folder, () => Promise.resolve())
  const project = join(folder, 'digest', 'home', 'project')
  mkdirSync(project, { recursive: true })
  writeFileSync(join(project, 'package.json'), '{}')
  expect(bundles.projectPath(join(project, 'src', 'tasks.ts'))).toBe('src/tasks.ts')
  expect(bundles.projectPath(join(folder, 'gone', 'src', 'tasks.ts'))).toBe('src/tasks.ts')
  expect(bundles.projectPath(join(folder, 'tasks.ts'))).toBe('tasks.ts')
  expect(bundles.projectPath(join(tmpdir(), 'tasks.ts'))).toBeNull()
})
