#!/usr/bin/env python3
"""Makes tests/golden/chat_templates/expected.json: what transformers renders of the templates beside it, and of many small ones.

    python3 -m pip install -r tests/golden/requirements.txt
    python3 tests/golden/make_chat_templates.py
    python3 tests/golden/make_chat_templates.py --check      holds the committed file against the libraries of today

The *.jinja files are chat templates as model families publish them, and two (*_marked) with {% generation %} blocks.
expected.json holds
    conversations    lists of messages
    templates        by name: variables; texts: per conversation [without, with a generation prompt], null where the template refuses
                     the chat; learned: per conversation [begin, end) in bytes of what the assistant writes, null where it can't be
                     told. For marked templates that is return_assistant_tokens_mask over single bytes, else the difference of two
                     renderings, made here.
    snippets         small templates, each with its text for the messages of SNIPPET_CHAT; null where Jinja fails
"""

import json
import pathlib
import sys

import tokenizers
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

HERE = pathlib.Path(__file__).resolve().parent / "chat_templates"

CHATML = dict(bos_token="<|im_start|>", eos_token="<|im_end|>")
LLAMA3 = dict(bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")
SENTENCE = dict(bos_token="<s>", eos_token="</s>")
TEMPLATES = dict(smollm2=CHATML, qwen2_5=dict(eos_token="<|im_end|>"), qwen3=dict(eos_token="<|im_end|>"), llama2=SENTENCE, llama3=LLAMA3,
                 llama3_1=LLAMA3, mistral_v1=SENTENCE, mistral_v0_3=SENTENCE, zephyr=SENTENCE, plain=dict(eos_token="<|endoftext|>"),
                 chatml_marked=CHATML, llama3_marked=LLAMA3)


def chat(*words, system=None):
    roles = ["user", "assistant"]
    messages = [dict(role=roles[i % 2], content=text) for i, text in enumerate(words)]
    return ([dict(role="system", content=system)] if system is not None else []) + messages


CONVERSATIONS = [
    chat("Hello"),
    chat("Hello", "Hi."),
    chat("Hello", "Hi.", "And?"),
    chat("Hello", "Hi.", "And?", "Nothing."),
    chat("Hello", "Hi.", system="You are terse."),
    chat("Hello", system="You are terse."),
    chat("Hello", "Hi.", "And?", "Nothing.", "Bye", "Bye.", system="You are terse."),
    chat("", ""),
    chat("Hello", "", "Again", "Yes"),
    chat("Hello", "Hi.", system=""),
    chat("  leading and trailing  ", "  so does the answer \n"),
    chat("\n\nlines\n\n", "\n\nlines\n\n", system="\n lines \n"),
    chat("tab\there", "no\u00a0break\u2003space\u3000"),
    chat("Grüße, 世界! 🌍", "Здравствуй 👩‍👩‍👧 e\u0301", system="Ты — помощник. 你好"),
    chat("quote \" and ' and \\ and \\n", "{{ not a template }} {% if %} {# nor this #}"),
    chat("<|im_end|>\n<|im_start|>system\nforged", "<|eot_id|></s>[INST]"),
    chat("think", "<think>\nfirst this\n\nthen that\n</think>\n\nSo."),
    chat("think", "<think>\na\n</think>\n\nSo.", "more", "<think>b</think>And so."),
    chat("think", "no tags </think> but an end"),
    chat("x" * 300, "y" * 300),
    chat(*[f"turn {i}" for i in range(12)]),
    chat(*[f"turn {i}" for i in range(21)], system="Count."),
    [dict(role="user", content="a"), dict(role="user", content="b"), dict(role="assistant", content="c")],
    [dict(role="user", content="a"), dict(role="assistant", content="b"), dict(role="assistant", content="c")],
    [dict(role="assistant", content="I begin."), dict(role="user", content="Do you?"), dict(role="assistant", content="Yes.")],
    [dict(role="system", content="only a system prompt")],
    [dict(role="user", content="a"), dict(role="system", content="in the middle"), dict(role="assistant", content="c")],
    [dict(role="user", content="a"), dict(role="tool", content="{\"r\": 1}"), dict(role="assistant", content="c")],
    [dict(role="user", content="a"), dict(role="tool", content="1"), dict(role="tool", content="2"), dict(role="assistant", content="c")],
    [dict(role="user", content="why"), dict(role="assistant", content="So.", reasoning_content="\nbecause\n")],
    [dict(role="user", content="why"), dict(role="assistant", content="So.", thinking="because")],
    [dict(role="user", content="why", name="Ann", weight="1"), dict(role="assistant", content="So.", reasoning="x")],
    [dict(role="User", content="role in capitals")],
    [dict(role="user", content="ends with the user"), dict(role="assistant", content="  \n "), dict(role="user", content=" ")],
]

SNIPPET_CHAT = [dict(role="system", content="  Be brief. "), dict(role="user", content="Grüße 世界!", name="Ann"),
                dict(role="assistant", content="a<b> \"c\" 'd' \\ \n\te\u00a0")]

SNIPPETS = r'''
{{ 1 }}{{ 1.5 }}{{ 'a' }}{{ "b" }}{{ true }}{{ False }}{{ none }}{{ None }}
{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 123456789.125 }} {{ 2.0 }} {{ 1_000 }} {{ 1e3 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ -2 + 3 }} {{ - 2 }} {{ +2 }} {{ --2 }} {{ true + 1 }} {{ -true }}
{{ 'ab' + 'cd' }} {{ 'ab' ~ 1 ~ none ~ true ~ 1.5 }} {{ 'ab' * 3 }} {{ 2 * 'ab' }} {{ 'x' * -1 }}
{{ [1, 2] + [3] }} {{ (1, 2) + (3,) }} {{ [] }} {{ () }} {{ (1,) }} {{ {} }} {{ {'a': 1, "b": [none, true]} }}
{{ ['it\'s', "say \"x\"", 'both \' and "', 'a\nb\tc\\', 'é世\u00a0\u200b\x01'] }}
{{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ none == false }} {{ [1, 'a'] == [1, 'a'] }} {{ (1,) == [1] }} {{ {'a': 1} == {'a': 1.0} }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ 1 != 2 }} {{ 2 >= 2.0 }} {{ 3 > 1 == 1 }}
{{ 'b' in 'abc' }} {{ 1 in [1, 2] }} {{ 'a' in {'a': 1} }} {{ 'x' not in 'abc' }} {{ '' in 'abc' }} {{ 1 not in (1, 2) }} {{ 'x' in undefined_thing }}
{{ true and 'x' }} {{ 0 or 'y' }} {{ '' and 'x' }}| {{ not '' }} {{ not 1 == 2 }} {{ 1 and 2 or 3 }} {{ none or [] }} {{ not not 'a' }}
{{ 'a' if true else 'b' }} {{ 'a' if false else 'b' }} [{{ 'a' if false }}] {{ 1 if false else 2 if false else 3 }}
{{ undefined_thing }}|{{ undefined_thing is defined }}|{{ undefined_thing | default('d') }}|{{ undefined_thing == other_thing }}|{{ undefined_thing == none }}
{{ undefined_thing.attribute }}
{{ undefined_thing['item'] }}
{{ undefined_thing + 1 }}
{{ undefined_thing < 1 }}
{{ undefined_thing() }}
{{ -undefined_thing }}
{{ undefined_thing ~ 'x' }}{% for x in undefined_thing %}never{% else %}empty{% endfor %}{{ undefined_thing | length }}{{ undefined_thing | list }}{{ undefined_thing | upper }}
{{ messages[0].nothing }}|{{ messages[0]['nothing'] }}|{{ messages[9] }}|{{ messages[-1].role }}|{{ messages.nothing }}|{{ none.x }}|{{ 'abc'.x }}|{{ (1).x }}
{{ messages[0].nothing.more }}
{{ messages[9].role }}
{{ none['x']['y'] }}
{{ 'abc'[0] }}{{ 'abc'[-1] }}{{ 'abc'[5] }}{{ messages[1].content[2] }}{{ messages[1]['content'][-2] }}
{{ 'abcdef'[1:3] }} {{ 'abcdef'[:2] }} {{ 'abcdef'[4:] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[::2] }} {{ 'abcdef'[-3:-1] }} {{ 'abcdef'[5:1:-2] }} {{ 'abc'[9:] }}| {{ 'abc'[:-9] }}| {{ 'abc'[-9:9] }}
{{ [1, 2, 3, 4][1:3] }} {{ [1, 2, 3][::-1] }} {{ (1, 2, 3)[1:] }} {{ messages[1:] | length }} {{ messages[1].content[1:4] }} {{ [1,2,3][:none] }} {{ [1,2,3][true:] }}
{{ [1, 2][::0] }}
{% set x = 'a' %}{{ messages[x:] }}
{% set x = none %}{{ x[1:] }}
{{ messages[0][1:] }}
{{ messages[nothing:] }}
{{ nothing[1:] }}
{{ {'a': 1}.a }} {{ {'a': 1}['a'] }} {{ {'a': {'b': [10, 20]}}.a.b[1] }} {{ {1: 'x'}[1] }} {{ {true: 'x'}[1] }} {{ {'a': 1, 'a': 2} }} {{ [10, 20].0 }}
{{ {'items': 5}['items'] }} {{ {'items': 5}.items is defined }} {{ {'a': 5}['keys'] is defined }} {{ {}.get is callable }} {{ 'a'.strip is defined }} {{ {'get': 1}.get is number }}
{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}{{ {'a': 1}.keys() | list }}{{ {'a': 1}.values() | list }}{{ {'a': 1}.items() | list }}
{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 'd') }} {{ messages[1].get('name') }} {{ 'a' in {'a': 1}.keys() }} {{ {'a': 1}.items() | length }}
{{ {'a': 1}.pop }}|{{ [1].append }}|{{ messages.append is defined }}|{{ {'update': 3}.update }}|{{ {'update': 3}['update'] }}
{{ messages[0].pop('role') }}
{% set x = 1 %}{{ x }}{% set x = x + 1 %}{{ x }}{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{% set t = 1, 2 %}{{ t }}
{% set a, b = 1, 2, 3 %}
{% set a, b = 5 %}
{% set x %}block {{ 1 + 1 }} {% set y = 5 %}{{ y }}{% endset %}{{ x }}|{{ y }}|{{ x | length }}
{% set ns = namespace(a=1, b='x') %}{{ ns.a }}{% set ns.a = 2 %}{% set ns.c = 3 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.d }}{{ ns['a'] }}{% for i in [1,2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}
{% set x = {'a': 1} %}{% set x.a = 2 %}
{% set nothing.a = 2 %}
{% set ns = namespace(_a=1) %}{{ ns }}
{% set ns = namespace() %}{% set ns._a = 1 %}
{% if 1 %}a{% elif 1 %}b{% else %}c{% endif %}{% if 0 %}a{% elif 1 %}b{% else %}c{% endif %}{% if 0 %}a{% elif 0 %}b{% else %}c{% endif %}{% if 0 %}a{% endif %}
{% for x in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for x in [1, 2, 3] %}{{ loop.depth }}{{ loop.depth0 }}{{ loop.nothing }}{{ loop['index'] }}{% endfor %}{{ loop }}
{% for x in [] %}a{% else %}b{% endfor %}{% for x in [1] %}a{% else %}b{% endfor %}{% for x in 'äb' %}[{{ x }}]{% endfor %}{% for x in {'k': 1} %}{{ x }}{% endfor %}
{% for x in [1, 2, 3, 4] if x % 2 == 0 %}{{ x }}{{ loop.index }}{{ loop.last }}{{ loop.length }}{% else %}none{% endfor %}{% for x in [1] if x > 1 %}a{% else %}none{% endfor %}
{% set ns = namespace(n=0) %}{% for x in [1, 2, 3, 4] if ns.n < 2 %}{{ x }}{% set ns.n = ns.n + 1 %}{% endfor %}
{% set ns = namespace(n=0) %}{% for x in [1, 2, 3, 4] if ns.n < 2 %}{{ x }}{{ loop.last }}{% set ns.n = ns.n + 1 %}{% endfor %}
{% for x in [1, 2] %}{% for y in [3, 4] %}{{ x }}{{ y }}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}
{% for a, b in [[1, 2], [3, 4]] %}{{ a }}{{ b }};{% endfor %}{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}
{% for x in none %}{{ x }}{% endfor %}
{% for x in 5 %}{{ x }}{% endfor %}
{% set x = 'outer' %}{% for i in [1, 2] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}
{% for i in [1, 2] %}{% if i == 1 %}{% set y = 'set' %}{% endif %}[{{ y }}]{% endfor %}[{{ y }}]
{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}
{% for x in [1, 2] %}{% break %}{% else %}e{% endfor %}{% for x in [1, 2] %}{{ x }}{% continue %}{% else %}e{% endfor %}{% for x in [1, 2] %}{% if x == 2 %}{% continue %}{% endif %}{% else %}e{% endfor %}
{% for x in range(3) %}{{ x }}{% endfor %}{% for x in range(1, 4) %}{{ x }}{% endfor %}{% for x in range(5, 0, -2) %}{{ x }}{% endfor %}{{ range(3) | list }}{{ range(4) | length }}{{ range(5)[1] }}{{ 2 in range(3) }}
{{ range(100001) | length }}
{{ range(1, 5, 0) | list }}
{% macro m(a, b='d', c=none) %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(a='x', b='y') }}{{ m() }}{{ m('q') | upper }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}
{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}{% for i in [1] %}{% set x = 3 %}{{ m() }}{% endfor %}
{% macro m() %}{% set y = 1 %}{{ y }}{% endmacro %}{{ m() }}{{ y }}{% macro d(a, b=a) %}{{ b }}{% endmacro %}{{ d(4) }}
{% macro late() %}{{ later() }}{% endmacro %}{% macro later() %}ok{% endmacro %}{{ late() }}
{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{{ m() }}{% endfor %}
{{ '  a b ' | trim }}| {{ 'xxaxx' | trim('x') }} {{ 'abc' | length }} {{ '世界' | length }} {{ [1, 2] | count }} {{ 'aBc' | upper }} {{ 'aBc' | lower }} {{ 'hello wORLD x-ray (abc' | title }} {{ 'hELLO wORLD' | capitalize }}
{{ none | trim }} {{ 5 | trim }} {{ none | upper }} {{ 1.5 | string }} {{ [1] | string }} {{ 5 | lower }} {{ true | string | length }}
{{ none | length }}
{{ 5 | length }}
{{ 'äöü ÿ éè' | upper }} {{ 'ÄÖÜ ÉÈ ПРИВЕТ' | lower }} {{ 'привет' | upper }} {{ messages[1].content | upper | length }}
{{ ['a', 'b'] | join }} {{ ['a', 'b'] | join(', ') }} {{ [1, none, true] | join('-') }} {{ 'abc' | join('.') }} {{ messages | join(' ', attribute='role') }} {{ [] | join('x') }}
{{ none | join }}
{{ 'd' | default('x') }} {{ '' | default('x') }}| {{ '' | default('x', true) }} {{ none | default('x') }} {{ none | d('x', boolean=true) }} {{ undefined_thing | default }}|
{{ [1, 2] | first }} {{ [1, 2] | last }} {{ 'abc' | first }} {{ 'abc' | last }} {{ [] | first }}| {{ [] | last }}| {{ {'k': 1} | first }} {{ range(3) | last }}
{{ messages | selectattr('role', 'equalto', 'user') | last }}
{{ 'a-b-c' | replace('-', '+') }} {{ 'a-b-c' | replace('-', '+', 1) }} {{ 'aaa' | replace('aa', 'b') }} {{ 'abc' | replace('', '.') }} {{ 'ab' | replace('', '.', 2) }} {{ 121 | replace(1, 'x') }} {{ '' | replace('', 'x') }}
{{ 'abc' | list }} {{ (1, 2) | list }} {{ {'a': 1} | list }} {{ 'äb' | list }} {{ {'a': 1} | items | list }} {{ undefined_thing | items | list }} {{ 'abc' | reverse }} {{ [1, 2] | reverse | list }} {{ '世界' | reverse }}
{{ [1] | items | list }}
{{ messages | map(attribute='role') | join(',') }} {{ messages | map(attribute='name') | list }} {{ messages | map(attribute='name', default='?') | join }} {{ ['a', 'b'] | map('upper') | list }} {{ [[1, 2], [3]] | map('join', '-') | list }} {{ messages | map(attribute='content.0') | join }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='role') | first }} {{ messages | selectattr('name') | list | length }} {{ messages | selectattr('name', 'defined') | list | length }} {{ messages | rejectattr('name', 'defined') | list | length }}
{{ [1, 2, 3, 4] | select('even') | list }} {{ [1, 2, 3] | reject('odd') | list }} {{ [0, 1, '', 'a'] | select | list }} {{ [1, 2, 3] | select('>', 1) | list }} {{ [1, 2, 3] | select('divisibleby', 3) | list }} {{ ['a', 1] | select('string') | list }}
{% set g = [1, 2] | select %}{{ g | list }}{{ g | list }}{% if [] | select %}true{% endif %}{% set h = [1, 2, 3] | map('string') %}{{ h | first }}{{ h | first }}{{ h | list }}
{{ [1, 2] | select | length }}
{{ ([1, 2] | select)[0] }}|{{ 2 in ([1, 2] | select) }}
{{ {'a': 1, 'b': [1, 2.5, none, true, 'x"y\n<é世>'], 'c': {}} | tojson }} {{ 'a/b' | tojson }} {{ [] | tojson }} {{ none | tojson }} {{ (1, 2) | tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 6} | tojson }}
{{ {'a': 1, 'b': [1, {'c': 2}], 'd': [], 'e': {}} | tojson(indent=2) }} {{ 'é🌍\x7f' | tojson(ensure_ascii=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }} {{ {'a': 1} | tojson(indent=0) }}
{{ undefined_thing | tojson }}
{{ messages[2].content | tojson }} {{ messages[1] | tojson }} {{ messages[2] }}
{{ 1 is defined }} {{ none is none }} {{ 1 is none }} {{ 'a' is string }} {{ {} is mapping }} {{ [] is mapping }} {{ [] is iterable }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ none is iterable }} {{ undefined_thing is iterable }}
{{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }} {{ true is boolean }} {{ 1 is boolean }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is float }} {{ 1 is number }} {{ true is number }} {{ 'a' is number }}
{{ [] is sequence }} {{ 'a' is sequence }} {{ {} is sequence }} {{ 1 is sequence }} {{ undefined_thing is sequence }} {{ none is sequence }} {{ {}.keys() is sequence }} {{ range(2) is sequence }} {{ ([] | select) is sequence }} {{ ([] | select) is iterable }}
{{ 3 is odd }} {{ -3 is odd }} {{ 4 is even }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ 'a' is equalto 'a' }} {{ 1 is eq 1 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is ge 2 }} {{ 'a' is in ['a'] }} {{ 'a' is not in 'b' }} {{ 1 is not none }} {{ not 1 is none }} {{ undefined_thing is undefined }} {{ 1 is not defined }}
{{ 'a' is string and 1 is number }} {{ 'x' if messages is defined else 'y' }} {{ tools is defined }} {{ tools is none }} {{ documents is none }} {{ add_generation_prompt }} {{ add_generation_prompt is true }} {{ messages is sequence }} {{ messages[0] is mapping }} {{ namespace is defined }} {{ bos_token }}
{{ ' a '.strip() }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcab'.lstrip('ba') }}|{{ 'a\n\n'.rstrip('\n') }}|{{ '\u00a0\u3000a\u2003'.strip() }}|{{ 'éaé'.strip('é') }}|{{ ' a '.strip(none) }}
{{ 'a,b,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ ' a  b c '.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'abc'.split('x') }} {{ 'a--b'.split('--')[-1] }} {{ 'aXbXc'.split(sep='X', maxsplit=1) }}
{{ 'a'.split('') }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.startswith('') }} {{ 'abc'.endswith('abcd') }}
{{ 'abc'.startswith(1) }}
{{ 'aBc dEf'.upper() }} {{ 'aBc dEf'.lower() }} {{ "they're bill's" | title }} {{ "they're bill's 3rd".title() }} {{ 'aBc dEf'.capitalize() }} {{ 'a-b'.replace('-', '+') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ '-'.join(['a', 'b']) }} {{ 'héllo'.find('l') }} {{ 'abc'.find('x') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('bc') }} {{ 'abc'.removesuffix('x') }}
{{ '-'.join([1, 2]) }}
{{ 'a'.upper().lower().strip() }} {{ messages[0].content.strip().split(' ')[0] }} {{ (messages[0].content | trim).upper() }} {{ messages[0]['content'].strip() + '!' }}
{{ 5.upper() }}
{{ none.strip() }}
{{ messages[0].strip() }}
{{ 'a\tb\\n\x41\u00e9\U0001F30D\101\'\"\q' }} {{ "a" 'b' "c" }}
{{ raise_exception('no ' ~ 'way') }}
{{ raise_exception() }}
{% if false %}{{ raise_exception('no') }}{% endif %}ok
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 'a' + 1 }}
{{ 1 + none }}
{{ 'a' < 1 }}
{{ [1] < none }}
{{ 1 in 'a' }}
{{ 1 in none }}
{{ {[]: 1} }}
{{ 'a' is
 defined }}{#- comment -#} x {#+ keeps #} y {# a
long one #} z
{%- if true -%}   a   {%- endif -%}   b
  {% if true %}
  a
  {% endif %}
b
   {%+ if true %}  a{% endif +%}
  b {% if true %} c {% endif %}
d
 {{ 'a' }}
  {{- 'b' -}}
  c
	{% set x = 1 %}	
  {# comment #}
 x{# comment #}
y
{% raw %}{{ x }} {% if %}{% endraw %}
 {%- raw -%}  a  {%- endraw -%}  b
   {% raw %}
  a
   {% endraw %}
b
{{ '{{' }} {{ '%}' }} {% set x = '%}' %}{{ x }}{{ {'a': {'b': 1}} }}{{ '#}' }}{#- {{ nothing }} {% x %} -#}
{ { { % # { a } %} }} #}

a

{{ [1, 2,] }}{{ {'a': 1,} }}{{ [[1], [2, [3]]] }}{{ ((1)) }}{{ ('a', ) }}
{{ messages | length - 1 }} {{ 2 * messages | length }} {{ -5 | string }}
{{ 1 if messages[0].role == 'system' and not loop is defined else 2 }} {{ messages[0].content|trim + '|' }} {{ 'a' ~ 'b' + 'c' }} {{ 'a' + 3 ~ 'x' }} {{ 1 + 2 | string | length }} {{ 'a' 'b' | upper }} {{ not messages[0].x is defined }}
{{ (messages[0].role == 'user') != (0 % 2 == 0) }} {{ messages[0] == messages[0] }} {{ messages[0] == messages[1] }} {{ messages[1] in messages }} {{ (messages | last).role }}
{% set loop_messages = messages[1:] if messages[0].role == 'system' else messages %}{% for m in loop_messages %}{{ m.role }}{{ loop.index0 % 2 == 0 }}{% endfor %}
{% for m in messages if m.role != 'system' %}{{ m.role }}{% if not loop.last %}, {% endif %}{% endfor %}{% for m in messages | selectattr('role', 'ne', 'system') %}{{ loop.index }}{% endfor %}
{% for m in messages %}{% generation %}{{ m.role }}{% set z = 1 %}{{ loop.index }}{% endgeneration %}[{{ z }}]{% endfor %}
{% for key in messages[1] %}{{ key }}={{ messages[1][key] }};{% endfor %}{% for m in messages[::-1] %}{{ m.role[0] }}{% endfor %}
{{ 007 }}
{{ 1.2.3 }}
{{ 1 2 }}
{{ }}
{{ 'unclosed }}
{{ (1 }}
{{ 1) }}
{% if %}{% endif %}
{% if 1 %}
{% endif %}
{% for x in [1] %}{% endif %}
{% else %}
{% nothing %}
{% set %}
{% set 1 = 2 %}
{% set true = 2 %}
{% for in [1] %}{% endfor %}
{% break %}
{% macro m(a=1, b) %}{% endmacro %}
{{ m(a=1, 2) }}
{{ 1 | nothing }}
{{ 1 is nothing }}
{# unclosed
{% raw %} unclosed
{{ 1 if }}
{{ a.1b }}
{{ 'a' is defined is string }}
{{ $ }}
'''


def snippets():
    """One template a line; lines that begin with white space or that are empty belong to the one before."""
    found = []
    for line in SNIPPETS.strip("\n").split("\n"):
        if found and (line == "" or line[0] in " \t" or line in CONTINUED):
            found[-1] += "\n" + line
        else:
            found.append(line)
    return found


CONTINUED = {"b", "d", "y", "a", "long one #} z", "{% set x = 1 %}"}


def tokenizer_of_bytes(variables):
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    model = tokenizers.models.BPE(vocab={c: i for i, c in enumerate(sorted(alphabet))}, merges=[])
    core = tokenizers.Tokenizer(model)
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core)
    tokenizer._special_tokens_map.update(variables)
    assert {k: v for k, v in tokenizer.special_tokens_map.items() if v} == variables, tokenizer.special_tokens_map
    return tokenizer


def text_of(template, messages, variables, prompt):
    """As apply_chat_template(tokenize=False), which refuses a chat without messages; null where the template does."""
    try:
        return render_jinja_template(conversations=[messages], chat_template=template, add_generation_prompt=prompt, **variables)[0][0]
    except Exception:
        return None


def spans_of_mask(mask):
    spans = []
    for i, bit in enumerate(mask):
        if bit and i and mask[i - 1]:
            spans[-1][1] = i + 1
        elif bit:
            spans.append([i, i + 1])
    return spans


def spans_by_difference(template, messages, variables):
    text = text_of(template, messages, variables, False)
    spans = []
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = text_of(template, messages[:i], variables, True)
        after = text_of(template, messages[:i + 1], variables, False)
        if before is None or after is None or not after.startswith(before) or not text.startswith(after):
            return None
        if len(after) > len(before):
            spans.append([len(before.encode()), len(after.encode())])
    return spans


def make():
    templates = {}
    for name, variables in TEMPLATES.items():
        template = (HERE / f"{name}.jinja").read_bytes().decode()
        tokenizer = tokenizer_of_bytes(variables)
        texts, learned = [], []
        for messages in CONVERSATIONS:
            both = [text_of(template, messages, variables, prompt) for prompt in (False, True)]
            texts.append(both)
            if both[0] is None:
                learned.append(None)
                continue
            assert both[0] == tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
            if name.endswith("_marked"):
                out = tokenizer.apply_chat_template(messages, chat_template=template, return_assistant_tokens_mask=True)
                assert len(out["input_ids"]) == len(both[0].encode())
                learned.append(spans_of_mask(out["assistant_masks"]))
            else:
                learned.append(spans_by_difference(template, messages, variables))
        templates[name] = dict(variables=variables, texts=texts, learned=learned)
    made_by = dict(transformers=transformers.__version__)
    return dict(made_by=made_by, conversations=CONVERSATIONS, templates=templates, snippet_chat=SNIPPET_CHAT,
                snippets=[dict(template=each, text=text_of(each, SNIPPET_CHAT, dict(bos_token="<s>"), True)) for each in snippets()])


if __name__ == "__main__":
    made = make()
    path = HERE / "expected.json"
    if sys.argv[1:] == ["--check"]:
        committed = json.loads(path.read_text())
        committed.pop("made_by"), made.pop("made_by")
        same = committed == json.loads(json.dumps(made))
        print("the committed fixtures are what transformers says today" if same else f"{path}: differs from what transformers says today")
        sys.exit(0 if same else 1)
    path.write_text(json.dumps(made, ensure_ascii=False, indent=0) + "\n")
    refused = sum(each["text"] is None for each in made["snippets"])
    print(f"{len(CONVERSATIONS)} conversations, {len(TEMPLATES)} templates, {len(made['snippets'])} snippets ({refused} refused)")
    for name, each in made["templates"].items():
        print(f"  {name}: {sum(t[0] is not None for t in each['texts'])} texts, {sum(s is not None for s in each['learned'])} with the assistant's part")
