/** The chat page of the server: a conversation with a served model. */

import { render } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import {
  ask,
  askAgain,
  change,
  clear,
  connect,
  isAnswering,
  models,
  needsKey,
  problem,
  type Settings,
  settings,
  stop,
  type Turn,
  turns,
  useKey,
  waitingFor,
} from './conversation.ts'

function Page() {
  return (
    <>
      <header>
        <h1>tutti</h1>
        <select
          aria-label="Model"
          value={settings.value.model}
          onChange={({ currentTarget }) => change({ model: currentTarget.value })}
        >
          {models.value.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <button type="button" disabled={turns.value.length === 0} onClick={clear}>
          New chat
        </button>
      </header>
      <main>
        <SettingsForm />
        <Conversation />
        {needsKey.value ? <KeyForm /> : null}
        {problem.value === '' ? null : <Problem />}
        <MessageForm />
      </main>
    </>
  )
}

interface FieldProps {
  readonly label: string
  readonly name: keyof Settings
  readonly max?: number
  readonly step: number | 'any'
}

const NumberField = ({ label, name, max, step }: FieldProps) => (
  <label>
    {label}
    <input
      type="number"
      min="0"
      max={max}
      step={step}
      placeholder="default"
      value={settings.value[name]}
      onInput={({ currentTarget }) => change({ [name]: currentTarget.value })}
    />
  </label>
)

const SettingsForm = () => (
  <details>
    <summary>Settings</summary>
    <div class="settings">
      <label class="wide">
        System prompt
        <textarea
          rows={2}
          value={settings.value.system}
          onInput={({ currentTarget }) => change({ system: currentTarget.value })}
        />
      </label>
      <NumberField label="Temperature" name="temperature" max={2} step="any" />
      <NumberField label="Top p" name="topP" max={1} step="any" />
      <NumberField label="Maximum tokens" name="maxTokens" step={1} />
      <NumberField label="Seed" name="seed" step={1} />
    </div>
  </details>
)

/** Follows the end of the conversation, unless the reader has scrolled up. */
function Conversation() {
  const isFollowing = useRef(true)
  const shown = turns.value
  const last = shown.at(-1)
  // A question scrolls to its answer, wherever the reader is.
  const isNewQuestion = last?.role === 'assistant' && last.text === '' && last.facts === ''
  useEffect(() => {
    const note = (): void => {
      const { scrollHeight, clientHeight, scrollTop } = document.documentElement
      isFollowing.current = scrollHeight - clientHeight - scrollTop < 60
    }
    addEventListener('scroll', note, { passive: true })
    return () => removeEventListener('scroll', note)
  }, [])
  useLayoutEffect(() => {
    if (isFollowing.current || isNewQuestion) scrollTo(0, document.documentElement.scrollHeight)
  }, [shown, problem.value])
  return (
    <section aria-label="Conversation">
      {shown.length === 0 ? <Welcome /> : null}
      {shown.map((turn, at) => (
        <TurnView key={at} turn={turn} isLast={at === shown.length - 1} />
      ))}
    </section>
  )
}

const Welcome = () => (
  <p class="muted">
    {needsKey.value
      ? ''
      : waitingFor.value === ''
        ? 'Write a message below. The conversation stays in this tab.'
        : `Waiting for ${waitingFor.value} …`}
  </p>
)

function TurnView({ turn, isLast }: { readonly turn: Turn; readonly isLast: boolean }) {
  const { role, author, text, reasoning, facts } = turn
  const isOpen = isLast && isAnswering.value
  return (
    <article class={role}>
      <h2>{author}</h2>
      {reasoning === '' ? null : (
        <details class="reasoning" open={isOpen && text === ''}>
          <summary>Reasoning</summary>
          <p>{reasoning}</p>
        </details>
      )}
      <div class="text">
        {text === '' && isOpen ? <span class="muted">…</span> : <AnswerText text={text} />}
      </div>
      {facts === '' ? null : (
        <footer>
          <span>{facts}</span>
          <CopyButton text={text} />
          {isLast && problem.value === '' ? (
            <button type="button" onClick={() => void askAgain()}>
              Again
            </button>
          ) : null}
        </footer>
      )}
    </article>
  )
}

/** Text with its fenced blocks of code. The last block may have no end yet. */
const AnswerText = ({ text }: { readonly text: string }) => (
  <>
    {text.split(/^```/m).map((part, at) => {
      if (at % 2 === 0) return part.trim() === '' ? null : <p key={at}>{part.trim()}</p>
      return (
        <pre key={at} tabIndex={0}>
          <code>{part.slice(part.indexOf('\n') + 1)}</code>
        </pre>
      )
    })}
  </>
)

function CopyButton({ text }: { readonly text: string }) {
  const [isCopied, setCopied] = useState(false)
  // Browsers offer the clipboard only to pages of this machine or with TLS.
  if (!('clipboard' in navigator)) return null
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(text)
    setCopied(true)
  }
  return (
    <button type="button" onClick={() => void copy()}>
      {isCopied ? 'Copied' : 'Copy'}
    </button>
  )
}

const KeyForm = () => (
  <form
    class="box"
    onSubmit={(event) => {
      event.preventDefault()
      const key = new FormData(event.currentTarget).get('key')
      void useKey(typeof key === 'string' ? key : '')
    }}
  >
    <label>
      This server wants an API key. This tab keeps it until it is closed.
      <input name="key" type="password" autocomplete="off" required />
    </label>
    <button type="submit">Use this key</button>
  </form>
)

const Problem = () => (
  <div class="box bad" role="alert">
    <p>{problem.value}</p>
    {turns.value.length === 0 || needsKey.value ? null : (
      <button type="button" onClick={() => void askAgain()}>
        Try again
      </button>
    )}
  </div>
)

/** Enter sends; with Shift it begins a line. Escape stops the answer. */
function MessageForm() {
  const [text, setText] = useState('')
  const canSend =
    text.trim() !== '' && waitingFor.value === '' && !needsKey.value && !isAnswering.value
  const send = (): void => {
    if (!canSend) return
    setText('')
    void ask(text)
  }
  return (
    <form
      class="message"
      onSubmit={(event) => {
        event.preventDefault()
        send()
      }}
      onKeyDown={(event) => {
        if (event.key === 'Escape') stop()
        if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return
        if (!(event.target instanceof HTMLTextAreaElement)) return
        event.preventDefault()
        send()
      }}
    >
      <textarea
        aria-label="Message"
        placeholder="Message"
        rows={Math.min(8, text.split('\n').length)}
        value={text}
        autofocus
        onInput={({ currentTarget }) => setText(currentTarget.value)}
      />
      {isAnswering.value ? (
        <button type="button" class="main" onClick={stop}>
          Stop
        </button>
      ) : (
        <button type="submit" class="main" disabled={!canSend}>
          Send
        </button>
      )}
    </form>
  )
}

render(<Page />, document.body)
void connect()
