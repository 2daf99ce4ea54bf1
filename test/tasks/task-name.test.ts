import { describe, expect, it } from 'vitest'
import { AITask } from '../../src/tasks/ai-task.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'

const nameOf = (executable: string, ...args: string[]): string =>
  new ComputeTask({ executable, arguments: args }).name

describe('the default name of a task', () => {
  it.each([
    ['simulate', '/opt/bin/simulate', ['mesh.py']],
    ['simulate', './simulate', []],
    ['python3', 'python3', []],
    ['python3 mesh.py', 'python3', ['mesh.py', '--n', '10']],
    ['python3.12 mesh.py', '/usr/bin/python3.12', ['-u', '/data/mesh.py']],
    ['python3 -m pkg.tool', 'python3', ['-m', 'pkg.tool', 'x.csv']],
    ['python3 train', 'python3', ['train', 'x.csv']],
    ['node x.mjs', 'node', ['--import', 'tsx', 'x.mjs', 'y.json']],
    ['java -jar solver.jar', 'java', ['-Xmx1g', '-jar', 'solver.jar']],
    ['sh -c cd run', 'sh', ['-c', 'cd run\n  && make']],
    ['sh -c sleep', 'sh', ['-c', 'sleep 0.02']],
    ['sh -c exit', 'sh', ['-c', 'exit 1 # --seed 3']],
    ['bash -c for i in', 'bash', ['-c', 'for i in 1 2 3; do echo "step $i"; done']],
    ['python3 -c print', 'python3', ['-c', 'print(1)']],
    ['sh -c', 'sh', ['-c', '"$0"']],
    ['bash -lc make all', 'bash', ['-lc', 'make all']],
    ['bash -c python3 mesh.py', 'bash', ['-c', 'FOO=1 python3 mesh.py']],
    ['sh -c true', 'sh', ['-c', 'API_TOKEN=hunter true']],
    ['sh -c', 'sh', ['-c', 'PASSWORD="hunter two" true']],
    ['sh -c true', 'sh', ['-c', 'true --password hunter']],
    ['node x.mjs', 'node', ['--require', './a.js', '--env-file', '.env', 'x.mjs']],
    ['deno x.ts', 'deno', ['run', '-A', 'x.ts']],
    ['python3 -um mod', 'python3', ['-um', 'mod']],
    ['uv mesh.py', 'uv', ['run', 'mesh.py']],
    ['env python3 mesh.py', 'env', ['A=1', 'python3', 'mesh.py']],
    ['mpirun python3 mesh.py', 'mpirun', ['-n', '4', 'python3', 'mesh.py']],
    ['srun', 'srun', ['-n', '4', './solver']],
    ['python3 me sh.py', 'python3', ['me\nsh.py']],
  ])('the default name of a task is %j for %s %j', (name, executable, args) => {
    expect(nameOf(executable, ...args)).toBe(name)
  })

  it('the default name of a shell command is its first words', () => {
    const task = new ComputeTask({ executable: 'make all | tee log', shell: true })
    expect(task.name).toBe('make all')
  })

  it('the default name of a prompt is its model', () => {
    expect(new AITask({ prompt: 'x', model: 'tiny' }).name).toBe('tiny')
    expect(new AITask({ prompt: 'x' }).name).toBe('')
  })

  it('the default name of a task is replaced by the option `name`', () => {
    expect(new ComputeTask({ executable: 'python3', name: 'mesh' }).name).toBe('mesh')
    expect(new ComputeTask({ function: () => 1, name: 'mesh' }).name).toBe('mesh')
    expect(new AITask({ prompt: 'x', name: 'ask' }).name).toBe('ask')
  })

  it.each(['', ' ', 'a\nb', 'x'.repeat(201), 5, null])('the option `name` is not %j', (name) => {
    const make = () => new ComputeTask({ executable: 'x', name: name as string })
    expect(make).toThrow(expect.objectContaining({ name: 'ValueError', field: 'name' }))
  })
})
