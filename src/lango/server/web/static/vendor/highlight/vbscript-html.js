/*! `vbscript-html` grammar compiled for Highlight.js 11.12.0 */
var hljsGrammar=(()=>{"use strict";return a=>({name:"VBScript in HTML",
subLanguage:"xml",contains:[{begin:"<%",end:"%>",subLanguage:"vbscript"}]})})()
;export default hljsGrammar;