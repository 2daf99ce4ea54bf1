"""Renders templates with Jinja, in the environment that chat templates are written for."""

import datetime
import json
import sys

import jinja2.ext
from jinja2.exceptions import TemplateError
from jinja2.sandbox import SandboxedEnvironment


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def raise_exception(message):
    raise TemplateError(message)


class Generation(jinja2.ext.Extension):
    """The tag that marks what the assistant wrote; it changes nothing."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def render(environment, compiled, source, variables):
    try:
        if source not in compiled:
            compiled[source] = environment.from_string(source)
        return {"text": compiled[source].render(**variables)}
    except TemplateError as error:
        isRaised = type(error) is TemplateError
        return {"error": str(error), "isRaised": isRaised}
    except Exception as error:
        return {"error": str(error), "isRaised": False}


def main():
    order = json.load(sys.stdin)
    now = datetime.datetime(*order["now"])
    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = now.strftime
    compiled = {}
    json.dump([render(environment, compiled, *one) for one in order["renders"]], sys.stdout)


main()
