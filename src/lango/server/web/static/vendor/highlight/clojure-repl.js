/*! `clojure-repl` grammar compiled for Highlight.js 11.12.0 */
var hljsGrammar=(()=>{"use strict";return a=>({name:"Clojure REPL",contains:[{
className:"meta.prompt",begin:/^([\w.-]+|\s*#_)?=>/,starts:{end:/$/,
subLanguage:"clojure"}}]})})();export default hljsGrammar;