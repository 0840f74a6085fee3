/*! `node-repl` grammar compiled for Highlight.js 11.12.0 */
var hljsGrammar=(()=>{"use strict";return a=>({name:"Node REPL",contains:[{
className:"meta.prompt",starts:{end:/ |$/,starts:{end:"$",
subLanguage:"javascript"}},variants:[{begin:/^>(?=[ ]|$)/},{
begin:/^\.\.\.(?=[ ]|$)/}]}]})})();export default hljsGrammar;