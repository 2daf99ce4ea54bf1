/** What the server serves: one run, or a folder of records. */

import { computed } from '@preact/signals'
import { pageState } from './fragment.ts'
import { stateOf } from './view-client.ts'

/** Whether the page lists the records of a folder: no run can be shown before one is chosen. */
export const isFolder = computed(() => {
  const { view, error } = stateOf('head').value
  return view === null && error !== '' && pageState.value.record === null
})
