/*! `mojolicious` grammar compiled for Highlight.js 11.12.0 */
var hljsGrammar=(()=>{"use strict";return e=>({name:"Mojolicious",
subLanguage:"xml",contains:[{className:"meta",begin:"^__(END|DATA)__$"},{
begin:"^\\s*%{1,2}={0,2}",end:"$",subLanguage:"perl"},{begin:"<%{1,2}={0,2}",
end:"={0,1}%>",subLanguage:"perl",excludeBegin:!0,excludeEnd:!0}]})})()
;export default hljsGrammar;