/*! `ldif` grammar compiled for Highlight.js 11.12.0 */
var hljsGrammar=(()=>{"use strict";return a=>({name:"LDIF",contains:[{
className:"attribute",match:"^dn(?=:)",relevance:10},{className:"attribute",
match:"^\\w+(?=:)"},{className:"literal",match:"^-"},a.HASH_COMMENT_MODE]})})()
;export default hljsGrammar;