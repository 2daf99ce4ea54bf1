import { describe, expect, it } from 'vitest'
import { ValueError } from '../../src/foundation/errors.ts'
import { expectNoBatchFile } from '../../src/tasks/program-options.ts'

describe('batch files on Windows', () => {
  it.each(['run.bat', 'RUN.CMD', 'a.bat.', 'b.cmd  ', String.raw`C:\tools\go.Bat`])(
    'row 9: batch files: %j is refused with a hint, and accepted with a shell',
    (executable) => {
      expect(() => expectNoBatchFile(executable, false, 'win32')).toThrow(ValueError)
      expect(() => expectNoBatchFile(executable, false, 'win32')).toThrow(/batch file/)
      expect(() => expectNoBatchFile(executable, true, 'win32')).not.toThrow()
      expect(() => expectNoBatchFile(executable, false, 'linux')).not.toThrow()
    },
  )

  it('row 9: batch files: other programs are accepted', () => {
    for (const executable of ['python.exe', 'bat', 'my.batch', 'cmd.exe']) {
      expect(() => expectNoBatchFile(executable, false, 'win32')).not.toThrow()
    }
  })
})
