/** Name the languages whose grammar is loaded with the first code block in it: each with its other names. */

const NAMES = `
  1c, abnf, accesslog, actionscript as, ada, angelscript asc, apache apacheconf, applescript osascript, arcade, arduino ino, armasm arm, asciidoc adoc,
  aspectj, autohotkey ahk, autoit, avrasm, awk, axapta x++, basic, bnf, brainfuck bf, cal, capnproto capnp, ceylon, clean icl dcl, clojure-repl,
  clojure clj edn, cmake cmake.in, coffeescript coffee cson iced, coq, cos cls, crmsh crm pcmk, crystal cr, csp, d, dart, delphi dpr dfm pas pascal,
  django jinja, dns bind zone, dockerfile docker, dos bat batch cmd, dsconfig, dts, dust dst, ebnf, elixir ex exs, elm, erb, erlang-repl, erlang erl,
  excel xlsx xls, fix, flix, fortran f90 f95, freedesktop desktop systemd, fsharp fs f#, gams gms, gauss gss, gcode nc, gherkin feature, glsl, gml,
  golo, gradle, groovy, haml, handlebars hbs html.hbs html.handlebars htmlbars, haskell hs, haxe hx, hsp, http https, hy hylang, inform7 i7, irpf90,
  isbl, jboss-cli wildfly-cli, julia-repl jldoctest, julia, lasso ls lassoscript, latex tex, ldif, leaf, lisp, livecodeserver, livescript ls, llvm,
  lsl, mathematica mma wl, matlab, maxima, mel, mercury m moo, mipsasm mips, mizar, mojolicious, monkey, moonscript moon, n1ql, nestedtext nt,
  nginx nginxconf, nim, nix nixos, node-repl, nsis, ocaml ml, openscad scad, oxygene, parser3, pf pf.conf, pgsql postgres postgresql, pony,
  powershell pwsh ps ps1, processing pde, profile, prolog, properties, protobuf proto, puppet pp, purebasic pb pbi, q k kdb, qml qt, reasonml re, rib,
  roboconf graph instances, routeros mikrotik, rsl, ruleslanguage, sas, scala, scheme scm, scilab sci, smali, smalltalk st, sml ml, sqf,
  stan stanfuncs, stata do ado, step21 p21 step stp, stylus styl, subunit, taggerscript, tap, tcl tk, thrift, tp, twig craftcms, vala, vbscript-html,
  vbscript vbs, verilog v sv svh, vhdl, vim, wren, x86asm, xl tao, xquery xpath xq xqm, zephir zep
`;

const FILES = new Map(NAMES.trim().split(/,\s*/).flatMap((names) => {
  const [file, ...others] = names.split(" ");
  return [file, ...others].map((name) => /** @type {[string, string]} */ ([name, file]));
}).toReversed()); // of two languages with the same short name, the first has it

/** Load the grammar of a language that highlight.js itself does not have; false: there is none. @param {any} highlighter @param {string} language @returns {Promise<boolean>} */
export async function loadLanguage(highlighter, language) {
  const file = FILES.get(language);
  if (!file) return false;
  const grammar = await import(`../vendor/highlight/${file}.js`).catch(() => null);
  if (grammar) highlighter.registerLanguage(file, grammar.default);
  return grammar !== null;
}
