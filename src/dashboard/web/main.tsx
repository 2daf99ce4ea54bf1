/** The page of the dashboard: puts the parts together and starts the connection. */

import { render } from 'preact'
import { Drawer } from './parts/drawer.tsx'
import { Filters } from './parts/filters.tsx'
import { Header } from './parts/header.tsx'
import { KeysDialog } from './parts/keys-dialog.tsx'
import { Panels } from './parts/tabs.tsx'
import { Replay } from './parts/replay.tsx'
import { ServerNotices } from './parts/server-notices.tsx'
import { Stream } from './stream/stream.tsx'
import { Records } from './panels/records.tsx'
import { listenToKeys } from './state/keyboard.ts'
import { isFolder, isServer } from './state/views.ts'
import { chosenTask } from './state/fragment.ts'
import { follow } from './state/view-client.ts'

function Page() {
  return (
    <div class={chosenTask.value === null ? undefined : 'with-drawer'}>
      <ServerNotices />
      <Header />
      <main>
        {isFolder.value ? (
          <Records />
        ) : (
          <>
            {isServer.value ? null : <Run />}
            <Panels />
          </>
        )}
      </main>
      {chosenTask.value === null ? null : <Drawer uid={chosenTask.value} />}
      <KeysDialog />
    </div>
  )
}

/** The parts above the panels. A server of models does not have them, because it has no tasks. */
function Run() {
  return (
    <>
      <Replay />
      <Stream />
      <Filters />
    </>
  )
}

render(<Page />, document.body)
listenToKeys()
void follow()
